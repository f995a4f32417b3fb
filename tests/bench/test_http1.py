import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.http1 import MAX_HEAD_BYTES, FramingError, Response

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 503 x\r\ntransfer-encoding: chunked\r\n\r\n4;a=b\r\nabcd\r\nA\r\n0123456789\r\n0\r\nT: 1\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize(
    ("wire", "status"),
    [(LENGTH, 200), (CHUNKED, 503), (INTERIM, 200), (EMPTY, 204), (LENGTH[:-5].replace(b"5", b"0"), 200)],
)
def test_a_response_is_complete_with_its_last_byte_and_not_before(wire: bytes, status: int) -> None:
    response = Response()
    for at in range(len(wire) - 1):
        assert not response.feed(wire[at : at + 1])
    assert response.feed(wire[-1:])
    assert response.status == status
    assert not response.closes


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.data())
def test_how_the_bytes_are_cut_does_not_matter(chunks: list[bytes], data: st.DataObject) -> None:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"
    cuts = sorted(data.draw(st.sets(st.integers(1, len(wire) - 1), max_size=10)))
    response = Response()
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        assert response.feed(wire[start:end]) == (end == len(wire))


@given(st.binary(max_size=400))
def test_any_bytes_give_a_response_or_a_framing_error(wire: bytes) -> None:
    response = Response()
    try:
        complete = response.feed(wire)
    except FramingError:
        return
    assert complete == (response.complete and response.status > 0)


def test_without_a_length_the_end_of_the_connection_is_the_end() -> None:
    response = Response()
    assert not response.feed(b"HTTP/1.1 200 OK\r\n\r\nany number of bytes")
    assert response.closes
    assert response.end_of_stream()


def test_the_end_of_the_connection_does_not_complete_a_body_that_is_too_short() -> None:
    response = Response()
    response.feed(LENGTH[:-1])
    assert not response.end_of_stream()


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_a_server_that_will_close_is_noticed(wire: bytes) -> None:
    response = Response()
    assert response.feed(wire)
    assert response.closes


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"x" * (MAX_HEAD_BYTES + 1),
        LENGTH + b"H",
    ],
)
def test_what_is_no_single_response_is_refused(wire: bytes) -> None:
    with pytest.raises(FramingError):
        Response().feed(wire)
