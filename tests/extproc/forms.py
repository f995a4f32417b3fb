"""Forms as clients write them."""

from collections.abc import Sequence

BOUNDARY = "----x7f3"
CONTENT_TYPE = f"multipart/form-data; boundary={BOUNDARY}"


def part(name: str, value: bytes | str, filename: str | None = None) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    file = "" if filename is None else f'; filename="{filename}"\r\nContent-Type: application/octet-stream'
    return f'Content-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + data


def form(*parts: bytes, boundary: str = BOUNDARY) -> bytes:
    mark = b"--" + boundary.encode()
    return b"".join(mark + b"\r\n" + one + b"\r\n" for one in parts) + mark + b"--\r\n"


def fields(pairs: Sequence[tuple[str, str]]) -> bytes:
    return form(*(part(name, value) for name, value in pairs))
