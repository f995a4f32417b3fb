"""Messages on a stream of bytes: each is preceded by its length in four bytes, the most significant first."""

import struct
from typing import Final

MAX_BYTES: Final = 268_435_456
"""The largest message. A snapshot of 100,000 requests in flight is 20 MB."""

_LENGTH: Final = struct.Struct(">I")


class FramingError(Exception):
    """What was read cannot be a message of ours."""


def frame(message: bytes) -> bytes:
    """Return ``message`` with its length before it.

    Raises:
        FramingError: it is larger than ``MAX_BYTES``.
    """
    if len(message) > MAX_BYTES:
        raise FramingError(f"a message of {len(message)} bytes")
    return _LENGTH.pack(len(message)) + message


class Deframer:
    """Finds the messages in what was read, however it was cut into pieces."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next piece; return the messages that are complete with it.

        Raises:
            FramingError: a length beyond ``MAX_BYTES``.
        """
        self._held += data
        messages, at = [], 0
        while len(self._held) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._held, at)
            if length > MAX_BYTES:
                raise FramingError(f"a message of {length} bytes")
            end = at + _LENGTH.size + length
            if len(self._held) < end:
                break
            messages.append(bytes(self._held[at + _LENGTH.size : end]))
            at = end
        del self._held[:at]
        return messages
