"""Compressed bodies: decoded to be read, within bounds that no bomb gets past. The engine gets the bytes as they came.

One coding at a time, and one stream of it: a second coding, or a second gzip member or zstd frame behind the first, is
legal and sent by nobody, and each would be one more way to make a little cost a lot.
"""

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import brotli

from extproc.errors import ApiError

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

MAX_RATIO: Final = 200
"""How much larger than what was sent a decoded body may be. Prose is 2 to 5 times as large, JSON of token ids 3 times,
a bomb of gzip 1,000 times and one of brotli or zstd a million times."""

FREE_BYTES: Final = 1_048_576
"""Up to this size the ratio does not count: a short test prompt may well be one word a thousand times."""

_SLICE: Final = 65_536
"""Bytes that are decoded in one step, at most."""

_ZSTD_WINDOW_LOG: Final = 23
"""8 MiB, the most that RFC 9659 lets a zstd content coding ask for; by itself a frame could ask for 2 GiB."""


class _Broken(Exception):  # noqa: N818  its one reader makes an error of it
    """The stream cannot be decoded to its end, or something follows it."""


def of_headers(headers: Mapping[str, str], *, decode: bool) -> str | None:
    """Return the coding of a request's body, ``None`` where it has none.

    Args:
        headers: the request's headers.
        decode: whether compressed bodies are served at all.

    Raises:
        ApiError: 415, it is not supported, or not alone.
    """
    named = headers.get("content-encoding")
    if not named:
        return None
    codings = [coding for part in named.split(",") if (coding := part.strip().lower()) not in {"", "identity"}]
    if not codings:
        return None
    if not decode:
        raise _unsupported(
            "Compressed requests are not supported; send the body without a content-encoding.", "identity"
        )
    if len(codings) > 1 or codings[0] not in _CODINGS:
        supported = ", ".join(CODINGS)
        raise _unsupported(f"A body's content-encoding may be one of {supported}, or none.", supported)
    return codings[0]


def _unsupported(message: str, accepted: str) -> ApiError:
    return ApiError(
        415,
        message,
        reason="unsupported_encoding",
        code="unsupported_content_encoding",
        headers={"accept-encoding": accepted},
    )


def decoded(body: bytes, coding: str, max_bytes: int) -> bytes:
    """Return ``body`` without its ``coding``. Takes up to a second for large ones; other threads run meanwhile.

    Raises:
        ApiError: 413, it would be larger than ``max_bytes``, or than ``MAX_RATIO`` allows; 400, it cannot be decoded.
    """
    most = min(max_bytes, max(FREE_BYTES, MAX_RATIO * len(body)))
    decoder = _CODINGS[coding]
    chunks = []
    size = 0
    try:
        for chunk in decoder.decode(body):
            size += len(chunk)
            if size > most:
                raise ApiError(
                    413,
                    f"The request's body is too large: decoded it may have {most} bytes, and at most {MAX_RATIO} times "
                    f"those sent where it is larger than {FREE_BYTES}.",
                    reason="request_too_large",
                    code="request_too_large",
                )
            chunks.append(chunk)
    except (_Broken, decoder.error):
        raise ApiError(
            400, f"The request's body is not valid {coding}, or not complete.", code="invalid_content_encoding"
        ) from None
    return b"".join(chunks)


def _slices(body: bytes) -> Iterator[bytes]:
    return (body[start : start + _SLICE] for start in range(0, len(body), _SLICE))


def _gzip(body: bytes) -> Iterator[bytes]:
    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
    for piece in _slices(body):
        if stream.eof:
            raise _Broken
        chunk, rest = b"", piece
        while rest or len(chunk) == _SLICE:
            chunk = stream.decompress(rest, _SLICE)
            yield chunk
            rest = stream.unconsumed_tail
    if not stream.eof or stream.unused_data:
        raise _Broken


def _brotli(body: bytes) -> Iterator[bytes]:
    stream = brotli.Decompressor()
    for piece in _slices(body):
        if stream.is_finished():
            raise _Broken
        chunk = stream.process(piece, output_buffer_limit=_SLICE)
        yield chunk
        # It may say that it takes more and still have something to give.
        while not stream.is_finished() and (chunk or not stream.can_accept_more_data()):
            chunk = stream.process(b"", output_buffer_limit=_SLICE)
            yield chunk
    if not stream.is_finished():
        raise _Broken


def _zstd(body: bytes) -> Iterator[bytes]:
    stream = ZstdDecompressor(options={DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})
    for piece in _slices(body):
        if stream.eof:
            raise _Broken
        yield stream.decompress(piece, _SLICE)
        while not stream.needs_input and not stream.eof:
            yield stream.decompress(b"", _SLICE)
    if not stream.eof or stream.unused_data:
        raise _Broken


class _Coding(NamedTuple):
    decode: Callable[[bytes], Iterator[bytes]]
    error: type[Exception]


_CODINGS: Final[Mapping[str, _Coding]] = {
    "gzip": _Coding(_gzip, zlib.error),
    "x-gzip": _Coding(_gzip, zlib.error),
    "br": _Coding(_brotli, brotli.error),
    "zstd": _Coding(_zstd, ZstdError),
}

CODINGS: Final = ("gzip", "br", "zstd")
"""What is supported, by the names to send; ``x-gzip`` is another name of gzip."""
