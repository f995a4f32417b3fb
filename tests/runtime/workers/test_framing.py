"""Messages on a stream, however the stream is cut."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runtime.workers import framing
from tidegate.runtime.workers.framing import Deframer, FramingError, frame

MESSAGES = st.lists(st.binary(max_size=300), max_size=20)


@given(MESSAGES, st.data())
def test_any_split_gives_the_same_messages(messages: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(frame, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    deframer = Deframer()
    found = [
        message
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for message in deframer.feed(stream[start:end])
    ]
    assert found == messages


def test_every_single_byte_may_come_alone() -> None:
    messages = [b"", b"one", b"x" * 1000]
    deframer = Deframer()
    stream = b"".join(map(frame, messages))
    assert [message for byte in stream for message in deframer.feed(bytes([byte]))] == messages


@given(st.binary(max_size=200))
def test_bytes_at_random_are_messages_or_an_error(data: bytes) -> None:
    deframer = Deframer()
    try:
        found = deframer.feed(data)
    except FramingError:
        return
    assert sum(4 + len(message) for message in found) <= len(data)


def test_a_message_may_not_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_BYTES", 10)
    assert Deframer().feed(frame(b"x" * 10)) == [b"x" * 10]
    with pytest.raises(FramingError, match="11 bytes"):
        frame(b"x" * 11)
    with pytest.raises(FramingError, match="11 bytes"):
        Deframer().feed(struct.pack(">I", 11))
