"""The beginnings of image files, by width and height."""

import base64
import struct


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x02\0\0\0"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0" * 8


def jpeg(width: int, height: int) -> bytes:
    thumbnail = b"\xff\xe1" + struct.pack(">H", 9_002) + b"\xff\xc0" * 4_500
    frame = b"\xff\xc2" + struct.pack(">HBHH", 11, 8, height, width) + b"\x01\x11\0"
    return b"\xff\xd8" + thumbnail + b"\xff" + frame + b"\xff\xda"


def webp_lossy(width: int, height: int) -> bytes:
    return b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width | 0x4000, height)


def webp_lossless(width: int, height: int) -> bytes:
    return b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)


def webp_extended(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + sides


FILES = (png, gif, jpeg, webp_lossy, webp_lossless, webp_extended)


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def data_url(data: bytes) -> str:
    return f"data:image/x;base64,{in_base64(data)}"
