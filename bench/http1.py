"""Where an HTTP/1.1 response ends (RFC 9112, section 6), incrementally and without keeping the body.

``Response`` reads one response at a time; it knows no sockets. It is no general parser: it exists so that the load
generator spends its time on load.
"""

from enum import Enum, auto

MAX_HEAD_BYTES = 65_536
_END_OF_HEAD = b"\r\n\r\n"


class FramingError(Exception):
    """The bytes are not an HTTP/1.1 response, or more than one."""


class _Awaiting(Enum):
    HEAD = auto()
    BODY = auto()
    CHUNK_SIZE = auto()
    CHUNK = auto()
    TRAILERS = auto()
    CLOSE = auto()
    NOTHING = auto()


class Response:
    """One response as it arrives.

    Attributes:
        status: the status code; 0 until the head is complete.
        closes: whether the server closes the connection after this response.
    """

    def __init__(self) -> None:
        self.status = 0
        self.closes = False
        self._awaiting = _Awaiting.HEAD
        self._buffer = b""
        self._left = 0  # bytes of body, or of chunk with its line end, still to come

    @property
    def complete(self) -> bool:
        """Whether the last byte has arrived."""
        return self._awaiting is _Awaiting.NOTHING

    def feed(self, data: bytes) -> bool:
        """Take the next bytes and return whether the response is complete.

        Raises:
            FramingError: the bytes cannot be part of this response.
        """
        self._buffer = self._buffer + data if self._buffer else data
        while self._buffer and self._step():
            pass
        return self.complete

    def end_of_stream(self) -> bool:
        """Take the end of the connection and return whether the response is complete."""
        if self._awaiting is _Awaiting.CLOSE:
            self._awaiting = _Awaiting.NOTHING
        return self.complete

    def _step(self) -> bool:
        """Consume what can be consumed of the buffer; return whether there may be more to do."""
        match self._awaiting:
            case _Awaiting.HEAD:
                return self._read_head()
            case _Awaiting.BODY | _Awaiting.CHUNK:
                return self._skip()
            case _Awaiting.CHUNK_SIZE:
                return self._read_chunk_size()
            case _Awaiting.TRAILERS:
                return self._read_trailers()
            case _Awaiting.CLOSE:
                self._buffer = b""
                return False
            case _Awaiting.NOTHING:
                raise FramingError("bytes after the end of the response")

    def _read_head(self) -> bool:
        end = self._buffer.find(_END_OF_HEAD)
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise FramingError(f"no end of the head within {MAX_HEAD_BYTES} bytes")
            return False
        start, *lines = self._buffer[:end].split(b"\r\n")
        self._buffer = self._buffer[end + len(_END_OF_HEAD) :]
        version, _, rest = start.partition(b" ")
        if version not in {b"HTTP/1.1", b"HTTP/1.0"} or not (rest[:3].isdigit() and len(rest[:3]) == 3):
            raise FramingError(f"not a status line: {start[:40]!r}")
        status = int(rest[:3])
        if 100 <= status < 200:  # an interim response; the real one follows
            return True
        headers = {name.lower(): value.strip().lower() for name, _, value in (line.partition(b":") for line in lines)}
        self.status = status
        self.closes = headers.get(b"connection") == b"close" or version == b"HTTP/1.0"
        self._choose_body(status, headers)
        return True

    def _choose_body(self, status: int, headers: dict[bytes, bytes]) -> None:
        length = headers.get(b"content-length")
        if status in {204, 304}:
            self._awaiting = _Awaiting.NOTHING
        elif headers.get(b"transfer-encoding") == b"chunked":
            self._awaiting = _Awaiting.CHUNK_SIZE
        elif length is None:
            self._awaiting = _Awaiting.CLOSE
            self.closes = True
        elif length.isdigit():
            self._left = int(length)
            self._awaiting = _Awaiting.BODY if self._left else _Awaiting.NOTHING
        else:
            raise FramingError(f"not a content-length: {length[:40]!r}")

    def _skip(self) -> bool:
        taken = min(self._left, len(self._buffer))
        self._left -= taken
        self._buffer = self._buffer[taken:]
        if self._left == 0:
            self._awaiting = _Awaiting.NOTHING if self._awaiting is _Awaiting.BODY else _Awaiting.CHUNK_SIZE
        return True

    def _read_chunk_size(self) -> bool:
        line, found, rest = self._buffer.partition(b"\r\n")
        if not found:
            if len(line) > MAX_HEAD_BYTES:
                raise FramingError("no end of a chunk's size line")
            return False
        digits = line.partition(b";")[0].strip()
        try:
            size = int(digits, 16)
        except ValueError:
            raise FramingError(f"not a chunk size: {digits[:40]!r}") from None
        if size < 0:
            raise FramingError(f"not a chunk size: {digits[:40]!r}")
        self._buffer = rest
        self._left = size + 2
        self._awaiting = _Awaiting.CHUNK if size else _Awaiting.TRAILERS
        return True

    def _read_trailers(self) -> bool:
        line, found, rest = self._buffer.partition(b"\r\n")
        if not found:
            if len(line) > MAX_HEAD_BYTES:
                raise FramingError("no end of a trailer line")
            return False
        self._buffer = rest
        if not line:
            self._awaiting = _Awaiting.NOTHING
        return True
