"""Server-sent events out of bytes that come in pieces, and which bytes each of them was.

Every byte that goes in comes out again, in order, in one piece or another: whoever forwards all pieces but some leaves
out exactly the events that these were. Nothing is kept beyond the event that has begun, and of that no more than
``max_event_bytes``: a larger one is passed over, its bytes come out as they come in, and it is counted.

Read as the standard says (lines end in LF, CR or CRLF; comments; ``data:`` with and without a space; several data
lines; a byte order mark), but for the end: an event that lacks its last empty line is an event too, because servers
leave it out.
"""

import re
from typing import Final, NamedTuple

MAX_EVENT_BYTES: Final = 1_048_576
"""The largest event that is read. Most have some hundred bytes; the one that ends a response of OpenAI's later API
holds all of its text again."""

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event: its name, empty where it has none, and its data, the lines joined by LF."""

    name: bytes
    data: bytes


class Piece(NamedTuple):
    """Bytes of the stream.

    Attributes:
        raw: the bytes.
        event: the event that they are, all of it; ``None`` if they are a comment, an empty line or something unread.
        continues: they are the LF of a CRLF whose CR was the end of the piece before, and share its lot.
    """

    raw: bytes
    event: Event | None = None
    continues: bool = False


class Parser:
    """Reads one stream.

    Attributes:
        passed_over: events that were too large to be read.
    """

    __slots__ = (
        "_at_start",
        "_commenting",
        "_cr_given",
        "_data",
        "_held",
        "_line",
        "_max",
        "_name",
        "_open",
        "_saw_cr",
        "_size",
        "_skipping",
        "passed_over",
    )

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """Read events of at most ``max_event_bytes``, the line ends not counted."""
        self.passed_over = 0
        self._max = max_event_bytes
        self._held = bytearray()  # bytes not given out yet
        self._line = bytearray()  # the line that has begun; where it is not read, its first bytes
        self._at_start = True
        self._commenting = False  # within a comment that stands alone, whose beginning was given out
        self._skipping = False  # within an event that is too large
        self._open = False  # an event has begun
        self._saw_cr = self._cr_given = False  # the last byte was a CR; and was given out
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[Piece]:
        """Take in the next bytes; return the pieces that are complete with them."""
        pieces: list[Piece] = []
        if not chunk:
            return pieces
        place = given = 0
        if self._saw_cr and chunk[0] == 10:
            place = 1
            if self._cr_given:
                pieces.append(Piece(b"\n", continues=True))
                given = 1
        self._saw_cr = False
        for end in _LINE_END.finditer(chunk, place):
            self._extend(chunk[place : end.start()])
            place = end.end()
            complete, event = self._end_line()
            if complete:
                pieces.append(self._piece(chunk[given:place], event))
                given = place
            if place == len(chunk) and chunk[-1] == 13:
                self._saw_cr, self._cr_given = True, complete
        self._extend(chunk[place:])
        if self._skipping or self._commenting:
            if given < len(chunk) or self._held:
                pieces.append(self._piece(chunk[given:], None))
        else:
            self._held += chunk[given:]
        return pieces

    def end(self) -> list[Piece]:
        """Take in that the stream has ended; return what is left."""
        if self._line:
            self._end_line()
        _, event = self._end_line()
        return [self._piece(b"", event)] if self._held or event is not None else []

    def _piece(self, raw: bytes, event: Event | None) -> Piece:
        if self._held:
            raw = bytes(self._held) + raw
            self._held.clear()
        return Piece(raw, event)

    def _extend(self, part: bytes) -> None:
        """Add to the line that has begun; see whether it is a comment that stands alone, or too long."""
        if self._skipping or self._commenting:
            # What matters of it is whether it is empty.
            self._line += part[: 1 - len(self._line)]
            return
        self._line += part
        if self._at_start:
            if len(self._line) < 3 and _BYTE_ORDER_MARK.startswith(self._line):
                return
            self._at_start = False
            if self._line.startswith(_BYTE_ORDER_MARK):
                del self._line[:3]
        if not self._open and self._line.startswith(b":"):
            self._commenting = True
            del self._line[1:]
        elif self._size + len(self._line) > self._max:
            self._skip()

    def _skip(self) -> None:
        self._skipping = True
        self.passed_over += 1
        del self._line[1:]
        self._data.clear()

    def _end_line(self) -> tuple[bool, Event | None]:
        """Take in the line that has ended; return whether a piece ends with it, and the event that does."""
        line = bytes(self._line)
        self._line.clear()
        self._at_start = False
        if self._commenting:
            self._commenting = False
            return True, None
        if line:
            if not self._skipping:
                self._open = True
                self._size += len(line)
                self._field(line)
            return self._skipping, None
        event = Event(self._name, b"\n".join(self._data)) if self._data and not self._skipping else None
        self._skipping = self._open = False
        self._name = b""
        self._data.clear()
        self._size = 0
        return True, event

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"event":
            self._name = value.removeprefix(b" ")
