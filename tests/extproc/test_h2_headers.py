from hpack import Decoder, Encoder, HeaderTuple, HPACKError, NeverIndexedHeaderTuple
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc import h2_headers
from extproc.h2_headers import RememberingDecoder

NAMES = st.sampled_from([":method", ":path", "te", "x-one", "x-two"])
VALUES = st.sampled_from(["POST", "/", "trailers", "a", "b" * 60])
FIELDS = st.lists(st.tuples(NAMES, VALUES, st.booleans()), max_size=6)


def same(blocks: list[bytes]) -> None:
    plain, remembering = Decoder(), RememberingDecoder()
    for block in blocks:
        try:
            expected = list(plain.decode(block, raw=True))
        except HPACKError as error:
            expected_error = type(error)
        else:
            assert list(remembering.decode(block, raw=True)) == expected
            assert remembering.header_table.dynamic_entries == plain.header_table.dynamic_entries
            continue
        try:
            remembering.decode(block, raw=True)
        except HPACKError as error:
            assert type(error) is expected_error  # noqa: PT017  one of two decoders that must agree
            return
        raise AssertionError("only the plain decoder found a fault")


@settings(deadline=None)
@given(st.lists(st.tuples(FIELDS, st.sampled_from([None, 0, 80, 100, 4096])), max_size=12))
def test_it_decodes_what_an_encoder_sends_like_the_plain_one(
    lists: list[tuple[list[tuple[str, str, bool]], int]],
) -> None:
    encoder = Encoder()
    blocks = []
    for fields, size in lists:
        if size is not None:
            encoder.header_table_size = size
        kinds = [(NeverIndexedHeaderTuple if never else HeaderTuple)(name, value) for name, value, never in fields]
        blocks.append(encoder.encode(kinds))
    same(blocks)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.sampled_from([b"\x82", b"\x83\x86", b"\xbe", b"\x20", b"\x3f\x10", b"\x40\x01a\x01b", b"\x00\x01a\x01b"])
    )
)
def test_it_decodes_blocks_in_any_order_like_the_plain_one(blocks: list[bytes]) -> None:
    same(blocks)


@given(st.lists(st.binary(max_size=8), max_size=8))
def test_it_finds_the_faults_that_the_plain_one_finds(blocks: list[bytes]) -> None:
    same(blocks)


def test_it_does_not_remember_without_bound() -> None:
    decoder = RememberingDecoder()
    for number in range(1_000):
        decoder.decode(b"\x00\x01a\x04%04d" % number, raw=True)
        decoder.decode(b"\x00\x01a\x7f\x81\x09" + b"x" * 1_280, raw=True)
        decoder.decode(b"\x00\x01b\x04%04d" % number, raw=True)
    assert len(decoder._remembered) <= h2_headers._REMEMBERED
