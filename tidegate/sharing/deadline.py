"""A deadline that does not count what came while nobody looked."""

import asyncio
from collections.abc import Coroutine
from typing import Final, TypeVar

from tidegate.sharing.errors import LinkError

Returned = TypeVar("Returned")

CANCEL_SECONDS: Final = 1.0
"""How long what is cancelled is waited for."""


async def within(seconds: float, doing: Coroutine[object, object, Returned]) -> Returned:
    """Return what ``doing`` does within ``seconds``.

    What has come by then counts, also where this process was too busy to look at it in time.

    Raises:
        LinkError: it was not done.
    """
    task = asyncio.ensure_future(doing)
    try:
        await asyncio.wait({task}, timeout=seconds)
        for _ in range(3):
            if not task.done():
                await asyncio.sleep(0)
        if not task.done():
            raise LinkError("timeout", f"no answer within {seconds * 1000:.0f} ms")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_SECONDS)
