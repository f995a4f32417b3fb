"""Asking the engine beside us whether it answers, so that the control plane sees what its node sees."""

import asyncio
import enum
import time
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp

MAX_URL = 512


class EngineState(enum.Enum):
    """How the engine answered."""

    ANSWERS = "answers"
    """It takes connections; over HTTP, with a status from 200 to 299."""
    REFUSES = "refuses"
    """No connection comes about."""
    SILENT = "silent"
    """No answer within the deadline."""
    BAD_STATUS = "bad_status"


class Probe(NamedTuple):
    """One attempt at ``at`` (seconds, monotonic), which took ``seconds``."""

    url: str
    at: float
    state: EngineState
    seconds: float
    http_status: int | None = None


class UrlError(ValueError):
    """What was given for ``--engine`` cannot be asked."""


def checked(url: str) -> str:
    """Return ``url`` with the path that engines answer at where it has none: ``/health``.

    Raises:
        UrlError: it is not ``http://``, ``https://`` or ``tcp://`` with a host and, for tcp, a port.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UrlError(f"expected a URL, got {url!r}: {error}") from None
    usable = parts.scheme in {"http", "https"} or (parts.scheme == "tcp" and port)
    if not usable or not parts.hostname or parts.username or len(url) > MAX_URL or not url.isprintable():
        raise UrlError(f"expected http://HOST:PORT/PATH, https://… or tcp://HOST:PORT, got {url!r}")
    if parts.scheme == "tcp":
        return f"tcp://{parts.netloc}"
    return parts._replace(path=parts.path if parts.path not in {"", "/"} else "/health").geturl()


async def probe(url: str, deadline: float) -> Probe:
    """Return how the engine at ``url`` answers within ``deadline`` seconds. Its body is not read."""
    started = time.monotonic()
    status = None
    try:
        async with asyncio.timeout(deadline):
            if url.startswith("tcp://"):
                await _connect(url)
            else:
                status = await _get(url)
        state = EngineState.ANSWERS if status is None or 200 <= status < 300 else EngineState.BAD_STATUS
    except TimeoutError:
        state = EngineState.SILENT
    except (aiohttp.ClientError, OSError, ValueError):
        state = EngineState.REFUSES
    now = time.monotonic()
    return Probe(url, now, state, now - started, status)


async def _connect(url: str) -> None:
    parts = urlsplit(url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.transport.abort()


async def _get(url: str) -> int:
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector, auto_decompress=False) as session,
        session.get(url, allow_redirects=False) as answer,
    ):
        return answer.status
