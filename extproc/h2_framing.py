"""gRPC's framing over HTTP/2: messages with a length prefix, constant headers, and the status as trailers.

After grpc/doc/PROTOCOL-HTTP2.md: a message is one byte that says whether it is compressed, four bytes of length in
network order, and the message. DATA frames cut it anywhere.
"""

import struct
from typing import NamedTuple

from hpack import Encoder, HeaderTuple, NeverIndexedHeaderTuple

from extproc.transport import Ending, Status, UnreadableMessage

_PREFIX = struct.Struct(">BI")
_SMALL_BYTES = 4_096


class KnownHeaders(NamedTuple):
    """Headers that are the same every time.

    Attributes:
        headers: themselves.
        block: as HPACK encodes them without its dynamic table; such a block can be read whatever that table holds.
    """

    headers: tuple[HeaderTuple, ...]
    block: bytes


def _known(*headers: HeaderTuple) -> KnownHeaders:
    unindexed = [NeverIndexedHeaderTuple(*header) for header in headers]
    return KnownHeaders(headers, Encoder().encode(unindexed))


RESPONSE_HEADERS = (HeaderTuple(b":status", b"200"), HeaderTuple(b"content-type", b"application/grpc"))
_OK_TRAILERS = (HeaderTuple(b"grpc-status", b"0"),)
RESPONSE = _known(*RESPONSE_HEADERS)
ALL_WELL = _known(*_OK_TRAILERS)
"""The headers that begin a response, and those that end one with OK."""

_PLAIN = frozenset(range(0x20, 0x7F)) - {ord("%")}


def framed(message: bytes) -> bytes:
    """Return ``message`` with its prefix, not compressed."""
    return _PREFIX.pack(0, len(message)) + message


def trailers(ending: Ending) -> tuple[HeaderTuple, ...]:
    """Return the headers that end a stream with ``ending``.

    Words that differ each time are kept out of HPACK's table, whose size is the peer's choice and our memory.
    """
    if ending.status is Status.OK:
        return _OK_TRAILERS
    status = HeaderTuple(b"grpc-status", b"%d" % ending.status)
    return (status, NeverIndexedHeaderTuple(b"grpc-message", percent_encoded(ending.details)))


def percent_encoded(text: str) -> bytes:
    """Return ``text`` as a ``grpc-message``: UTF-8, everything but printable ASCII as %XX, and so is the % itself."""
    encoded = text.encode("utf-8", "replace")
    return b"".join(b"%c" % byte if byte in _PLAIN else b"%%%02X" % byte for byte in encoded)


class Deframer:
    """Puts messages together from the data of one stream."""

    __slots__ = ("_held", "_limit", "_parts", "_small", "_wanted")

    def __init__(self, limit: int) -> None:
        """Take messages of up to ``limit`` bytes."""
        self._limit = limit
        # A long message is joined once: to let one buffer grow with every frame copies it nine times over (measured).
        self._parts: list[bytes] = []
        self._small = bytearray()
        self._held = 0
        self._wanted = _PREFIX.size

    @property
    def held(self) -> int:
        """Bytes of a message that is not complete yet."""
        return self._held

    def feed(self, data: bytes) -> list[bytes]:
        """Take in ``data``; return the messages that it completes.

        Memory is used for what has come, not for what a prefix announces.

        Raises:
            UnreadableMessage: a message is compressed, or too large. Nothing more can be read.
        """
        self._held += len(data)
        if self._held < self._wanted:
            self._keep(data)
            return []
        pending = b"".join((*self._parts, self._small, data)) if self._held > len(data) else data
        messages, at, end = [], 0, len(pending)
        while end - at >= _PREFIX.size:
            compressed, size = _PREFIX.unpack_from(pending, at)
            self._check(compressed, size)
            self._wanted = _PREFIX.size + size
            if end - at < self._wanted:
                break
            messages.append(pending[at + _PREFIX.size : at + self._wanted])
            at += self._wanted
            self._wanted = _PREFIX.size
        self._parts, self._small, self._held = [], bytearray(), end - at
        self._keep(pending[at:])
        return messages

    def _keep(self, data: bytes) -> None:
        """Keep ``data`` for later: as it came, or, of what is small, without an object for each piece."""
        if len(data) < _SMALL_BYTES:
            self._small += data
            return
        if self._small:
            self._parts.append(bytes(self._small))
            self._small = bytearray()
        self._parts.append(data)

    def _check(self, compressed: int, size: int) -> None:
        if compressed:
            raise UnreadableMessage(Ending(Status.UNIMPLEMENTED, "compressed messages are not taken"))
        if size > self._limit:
            raise UnreadableMessage(Ending(Status.RESOURCE_EXHAUSTED, f"a message of more than {self._limit} bytes"))
