"""Asking a directory over HTTP, within bounds: no redirects, no proxies from the environment, no endless answers."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from random import Random

import aiohttp
import msgspec

from tidegate import regular_file
from tidegate.discovery.contract import Backoff, Failed, Tell

MAX_BYTES = 67_108_864
"""Largest answer that is read; five thousand pods are listed in about 40 MiB."""

CONNECT_SECONDS = 5.0

Follow = Callable[[aiohttp.ClientSession, Backoff], Awaitable[None]]


class Refused(Exception):  # noqa: N818  it says what became of a question
    """An answer that is of no use; the message says why, in one line.

    Attributes:
        status: its HTTP status.
    """

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


async def session(ca: str | None = None) -> aiohttp.ClientSession:
    """Return a session whose peers prove who they are by ``ca`` (PEM), or by the system's authorities.

    Raises:
        OSError: the file cannot be read.
        ssl.SSLError: it holds no certificates.
    """
    # In a thread: reading the system's authorities takes 20 ms.
    context = await asyncio.to_thread(_context, ca)
    connector = aiohttp.TCPConnector(ssl=context, limit=8)
    return aiohttp.ClientSession(
        connector=connector, auto_decompress=True, max_line_size=16_384, max_field_size=16_384, trust_env=False
    )


async def followed(ca: str | None, rng: Random, tell: Tell, follow: Follow) -> None:
    """Have ``follow`` ask a directory, again and again: whatever ends it is told as a failure, and waited after."""
    backoff = Backoff(rng)
    while True:
        try:
            async with await session(ca) as asking:
                await follow(asking, backoff)
        except (aiohttp.ClientError, Refused, OSError, ssl.SSLError, ValueError) as error:
            tell(Failed("not JSON as expected" if isinstance(error, msgspec.DecodeError) else reason(error)))
        await asyncio.sleep(backoff.failed())


def _context(ca: str | None) -> ssl.SSLContext:
    if ca is not None:
        regular_file.read(ca)  # what is no file is an error, and not waited at
    return ssl.create_default_context(cafile=ca)


def secret(path: str | None) -> str:
    """Return the token in the file at ``path``, read anew each time because tokens are rotated; empty without one.

    Raises:
        OSError: it cannot be read.
        ValueError: it cannot be sent in a header.
    """
    if path is None:
        return ""
    token = regular_file.read(path, 65_535).decode("ascii").strip()
    if not token.isprintable():
        raise ValueError("a token of one printable line was expected")
    return token


async def body(answer: aiohttp.ClientResponse, most: int = MAX_BYTES) -> bytes:
    """Return all of ``answer``.

    Raises:
        Refused: its status is not 200, or it is longer than ``most`` bytes.
        aiohttp.ClientError: it broke off.
    """
    if answer.status != 200:
        raise Refused(f"HTTP {answer.status}", answer.status)
    parts, size = [], 0
    async for part in answer.content.iter_chunked(65_536):
        size += len(part)
        if size > most:
            raise Refused(f"an answer of more than {most} bytes", answer.status)
        parts.append(part)
    return b"".join(parts)


def reason(error: Exception) -> str:
    """Return what went wrong, in one line that holds nothing secret."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect ({error.os_error.strerror or 'failed'})"
    return f"{error}".splitlines()[0] if isinstance(error, OSError) and f"{error}" else "a broken answer"
