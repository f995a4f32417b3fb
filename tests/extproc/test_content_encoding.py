import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.content_encoding import CODINGS, FREE_BYTES, MAX_RATIO, decoded, of_headers
from extproc.errors import ApiError
from tests.extproc.compressed import COMPRESS, zstd_with_window

LIMIT = 33_554_432
every_coding = pytest.mark.parametrize("coding", CODINGS)


def _error(body: bytes, coding: str, limit: int = LIMIT) -> tuple[int, str | None]:
    with pytest.raises(ApiError) as caught:
        decoded(body, coding, limit)
    return caught.value.status, caught.value.code


@pytest.mark.parametrize(
    ("value", "coding"),
    [
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        (" br ", "br"),
        ("zstd", "zstd"),
        ("x-gzip", "x-gzip"),
        ("identity, gzip", "gzip"),
        ("identity", None),
        ("", None),
        (",", None),
    ],
)
def test_a_coding_is_read_as_http_has_it(value: str, coding: str | None) -> None:
    assert of_headers({"content-encoding": value}, decode=True) == coding


def test_a_body_without_a_coding_is_served_in_both_settings() -> None:
    assert of_headers({}, decode=True) is None
    assert of_headers({"content-encoding": "identity"}, decode=False) is None


@pytest.mark.parametrize("value", ["deflate", "compress", "gzip, br", "gzip,gzip", "aws-chunked", "none", "g\u00fczip"])
def test_another_coding_is_told_which_are_supported(value: str) -> None:
    with pytest.raises(ApiError) as caught:
        of_headers({"content-encoding": value}, decode=True)

    assert (caught.value.status, dict(caught.value.headers)) == (415, {"accept-encoding": "gzip, br, zstd"})
    assert "gzip, br, zstd" in caught.value.message
    assert value not in caught.value.message.split(), "what a client wrote is not repeated"


@every_coding
def test_compressed_bodies_can_be_ruled_out(coding: str) -> None:
    with pytest.raises(ApiError) as caught:
        of_headers({"content-encoding": coding}, decode=False)

    assert (caught.value.status, dict(caught.value.headers)) == (415, {"accept-encoding": "identity"})


@every_coding
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 3_000_000])
def test_a_body_comes_out_as_it_went_in(coding: str, size: int) -> None:
    body = random.Random(size).randbytes(size)

    assert decoded(COMPRESS[coding](body), coding, LIMIT) == body


@given(st.sampled_from(CODINGS), st.binary(max_size=2000), st.integers(1, 100))
def test_any_bytes_come_out_as_they_went_in(coding: str, body: bytes, times: int) -> None:
    assert decoded(COMPRESS[coding](body * times), coding, LIMIT) == body * times


def test_gzip_has_an_older_name() -> None:
    assert decoded(COMPRESS["gzip"](b"{}"), "x-gzip", LIMIT) == b"{}"


@every_coding
def test_a_stream_cut_short_anywhere_is_refused(coding: str) -> None:
    compressed = COMPRESS[coding](b'{"model": "m", "prompt": "hello hello hello"}')

    for end in range(1, len(compressed)):
        assert _error(compressed[:end], coding) == (400, "invalid_content_encoding")


@every_coding
@pytest.mark.parametrize("more", [b"x", b"\0" * 70_000])
def test_what_follows_a_stream_is_refused(coding: str, more: bytes) -> None:
    compressed = COMPRESS[coding](b"{}")

    assert _error(compressed + more, coding) == (400, "invalid_content_encoding")
    assert _error(compressed + compressed, coding) == (400, "invalid_content_encoding")


@given(st.sampled_from([*CODINGS, "x-gzip"]), st.binary(min_size=1, max_size=200))
def test_any_bytes_are_decoded_or_refused(coding: str, body: bytes) -> None:
    try:
        decoded(body, coding, LIMIT)
    except ApiError as error:
        assert error.status == 400  # noqa: PT017  both outcomes are right


@given(st.sampled_from(CODINGS), st.integers(0, 400), st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_harmless(coding: str, place: int, flip: int) -> None:
    compressed = bytearray(COMPRESS[coding](random.Random(1).randbytes(300)))
    compressed[place % len(compressed)] ^= flip
    try:
        assert len(decoded(bytes(compressed), coding, LIMIT)) < LIMIT
    except ApiError as error:
        assert error.status in {400, 413}  # noqa: PT017  both outcomes are right


@every_coding
def test_a_body_may_be_as_large_decoded_as_any_other(coding: str) -> None:
    body = random.Random(1).randbytes(100_000)
    compressed = COMPRESS[coding](body)

    assert decoded(compressed, coding, 100_000) == body
    assert _error(compressed, coding, 99_999) == (413, "request_too_large")


@every_coding
def test_a_bomb_is_refused_as_soon_as_it_goes_off(coding: str) -> None:
    bomb = COMPRESS[coding](b"a" * 40_000_000)
    assert len(bomb) * MAX_RATIO < LIMIT

    assert _error(bomb, coding) == (413, "request_too_large")
    # What is short when decoded is no bomb, however well it compresses.
    assert len(decoded(COMPRESS[coding](b"a" * FREE_BYTES), coding, LIMIT)) == FREE_BYTES
    assert _error(COMPRESS[coding](b"a" * (FREE_BYTES + 1)), coding) == (413, "request_too_large")


def test_a_bomb_within_a_bomb_is_one_body_that_is_no_json() -> None:
    inner = zlib.compress(b"a" * 1_000_000)

    assert decoded(COMPRESS["gzip"](inner), "gzip", LIMIT) == inner


def test_a_zstd_frame_cannot_ask_for_more_memory_than_the_coding_allows() -> None:
    body = b"hello"

    assert decoded(zstd_with_window(body, 23), "zstd", LIMIT) == body
    assert _error(zstd_with_window(body, 24), "zstd") == (400, "invalid_content_encoding")
