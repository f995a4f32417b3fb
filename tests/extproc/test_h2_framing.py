import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.h2_framing import Deframer, framed, percent_encoded, trailers
from extproc.transport import Ending, Status, UnreadableMessage


@given(st.lists(st.binary(max_size=40)), st.data())
def test_messages_come_out_whole_and_in_order_however_they_were_cut(messages: list[bytes], data: st.DataObject) -> None:
    sent = b"".join(map(framed, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)))))
    deframer, got = Deframer(40), []
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        got += deframer.feed(sent[start:end])
    assert (got, deframer.held) == (messages, 0)


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_random_bytes_are_messages_within_the_limit_or_a_fault(pieces: list[bytes]) -> None:
    deframer = Deframer(20)
    try:
        for piece in pieces:
            assert all(len(message) <= 20 for message in deframer.feed(piece))
            assert deframer.held < 25
    except UnreadableMessage as fault:
        found = fault.ending.status
    else:
        return
    assert found in {Status.UNIMPLEMENTED, Status.RESOURCE_EXHAUSTED}


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_length_beyond_the_limit_is_a_fault_as_soon_as_it_can_be_read(cut: int) -> None:
    deframer = Deframer(10)
    prefix = b"\x00\x00\x00\x00\x0b"
    deframer.feed(prefix[: cut - 1])
    if cut < 5:
        assert deframer.feed(prefix[cut - 1 : 4]) == []
    with pytest.raises(UnreadableMessage, match="more than 10 bytes"):
        deframer.feed(prefix[max(cut - 1, 4) :])


@given(st.text())
def test_the_words_of_an_error_survive_their_encoding(text: str) -> None:
    encoded = percent_encoded(text)
    assert urllib.parse.unquote(encoded.decode("ascii")) == text.encode("utf-8", "replace").decode()
    assert all(0x20 <= byte <= 0x7E for byte in encoded)


def test_words_are_kept_out_of_the_header_table() -> None:
    status, words = trailers(Ending(Status.INTERNAL, "100 %\n"))
    assert (status.indexable, words.indexable) == (True, False)
    assert tuple(words) == (b"grpc-message", b"100 %25%0A")
