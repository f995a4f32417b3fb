"""Whether a connection comes about. A frozen process still takes some: its kernel does."""

import aiohttp

from tidegate import addresses
from tidegate.engines import fetch
from tidegate.engines.check import PASSED, Found, Subject


async def ask(subject: Subject, session: aiohttp.ClientSession) -> Found:  # noqa: ARG001
    """Open a connection and close it again."""
    host, port = addresses.split(subject.address)
    await fetch.connect(host, port, timeout_seconds=subject.seconds)
    return PASSED
