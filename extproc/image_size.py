"""An image's size, read from the first bytes of its file. Nothing is decoded, and nothing is ever fetched."""

import base64
import binascii
import struct
from typing import Final

MAX_CHARACTERS: Final = 65_536
"""How much base64 is looked at: 48 KB of the file. A JPEG says its size after its thumbnail, mostly within that."""

LARGEST: Final = 65_536
"""More pixels on one side than any engine takes; what says more is no image."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_GIF: Final = (b"GIF87a", b"GIF89a")
_JPEG: Final = b"\xff\xd8"
_MAX_SEGMENTS: Final = 256


def of_data_url(url: str) -> tuple[int, int] | None:
    """Return width and height in pixels of the image in a ``data:`` URL; ``None`` for every other URL, unread."""
    head, comma, _ = url[:256].partition(",")
    if not comma or not head.lower().startswith("data:") or not head.lower().endswith(";base64"):
        return None
    return of_base64(url[len(head) + 1 : len(head) + 1 + MAX_CHARACTERS])


def of_base64(text: str) -> tuple[int, int] | None:
    """Return width and height in pixels of an image, PNG, JPEG, GIF or WebP; ``None`` when they cannot be told."""
    start = text[:MAX_CHARACTERS]
    try:
        data = base64.b64decode(start[: len(start) // 4 * 4])
        size = _size(data)
    except (binascii.Error, ValueError, struct.error, IndexError):
        # No base64; or the file ends before its size.
        return None
    return size if size and all(1 <= side <= LARGEST for side in size) else None


def _size(data: bytes) -> tuple[int, int] | None:
    if data.startswith(_PNG):
        return struct.unpack_from(">II", data, 16)
    if data.startswith(_GIF):
        return struct.unpack_from("<HH", data, 6)
    if data.startswith(_JPEG):
        return _of_jpeg(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _of_webp(data)
    return None


def _of_jpeg(data: bytes) -> tuple[int, int] | None:
    """Go from segment to segment until the one that begins a frame."""
    at = 2
    for _ in range(_MAX_SEGMENTS):
        while data[at] == 0xFF and data[at + 1] == 0xFF:  # fill bytes
            at += 1
        mark, kind = data[at], data[at + 1]
        if mark != 0xFF:
            return None
        if 0xC0 <= kind <= 0xCF and kind not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        (length,) = struct.unpack_from(">H", data, at + 2)
        at += 2 + length
    return None


def _of_webp(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
            return (width, height) if len(data) >= 30 else None
    return None
