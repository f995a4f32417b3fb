"""Bodies as clients compress them."""

import gzip
import sys
from collections.abc import Callable, Mapping

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def _brotli(body: bytes) -> bytes:
    compressed: bytes = brotli.compress(body, quality=4)
    return compressed


COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, mtime=0),
    "br": _brotli,
    "zstd": zstd.compress,
}


def zstd_with_window(body: bytes, log: int) -> bytes:
    """Compress with a window of 2 to the ``log`` bytes."""
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: log,
        zstd.CompressionParameter.content_size_flag: 0,
    }
    compressor = zstd.ZstdCompressor(options=options)
    return compressor.compress(body) + compressor.flush()
