"""Reading bodies without keeping anybody waiting: small ones at once, large and compressed ones in a thread.

They are read one after another, because reading is Python's work: two would not be faster, and would stand in the event
loop's way twice. What holds the interpreter in one go is bounded by ``density``. Measured on bodies of 31 MB, on two
cores: 1,000 messages keep the loop waiting for 10 ms, one text 25 ms, program code 40 ms, a text of nothing but escapes
72 ms; a million token ids (6 MB) 42 ms; what is refused for its density 5 ms.
"""

import asyncio
import functools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from extproc import content_encoding, density
from extproc.body import ParsedBody
from extproc.errors import RETRY_AFTER_SECONDS, SERVICE_UNAVAILABLE, ApiError

WAITING: Final = 256
"""Large bodies that may wait for the thread. They are in memory already; more would wait longer than they may."""

PATIENCE_SECONDS: Final = 5.0
"""How long a large body may take, the wait included. The largest take 0.2 s."""

DEFAULT_MAX_BYTES: Final = 33_554_432

T = TypeVar("T")


class Intake:
    """Reads the bodies of requests."""

    def __init__(
        self,
        max_bytes: int = DEFAULT_MAX_BYTES,
        *,
        decode: bool = True,
        waiting: int = WAITING,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """Read bodies.

        Args:
            max_bytes: the largest body in bytes, once it is decoded.
            decode: whether compressed bodies are decoded, or refused.
            waiting: large bodies that may wait for the thread.
            patience: seconds after which a large body is waited for no longer.
        """
        self.configure(max_bytes, decode=decode)
        self._patience = patience
        self._places = threading.BoundedSemaphore(1 + waiting)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="bodies")

    def configure(self, max_bytes: int, *, decode: bool) -> None:
        """Read by these limits, as in the constructor, from the next request on."""
        self._max_bytes = max_bytes
        self._decode = decode

    def close(self) -> None:
        """End the thread, once the streams have ended. Takes as long as the body that it is reading."""
        self._executor.shutdown(cancel_futures=True)

    def coding(self, headers: Mapping[str, str]) -> str | None:
        """Return how the body of a request is compressed, ``None`` if it is not.

        Raises:
            ApiError: 415, in a way that is not supported.
        """
        return content_encoding.of_headers(headers, decode=self._decode)

    async def read(self, parse: Callable[[bytes], ParsedBody], body: bytes, coding: str | None) -> ParsedBody:
        """Return what ``parse`` makes of ``body``.

        Raises:
            ApiError: ``parse`` refuses it, it cannot be decoded, it is too large decoded, or too many wait.
        """
        if coding is None:
            return await self._apply(parse, body)
        return await self._in_thread(functools.partial(self._decode_and, parse, coding), body)

    async def _apply(self, function: Callable[[bytes], T], body: bytes) -> T:
        """Return what ``function`` makes of ``body``, in a thread if that takes long."""
        return function(body) if len(body) <= density.UNCHECKED_BYTES else await self._in_thread(function, body)

    async def _in_thread(self, function: Callable[[bytes], T], body: bytes) -> T:
        if not self._places.acquire(blocking=False):
            raise _busy()
        try:
            reading = self._executor.submit(function, body)
        except RuntimeError:  # closed
            self._places.release()
            raise _busy() from None
        reading.add_done_callback(lambda _: self._places.release())
        try:
            await asyncio.sleep(0)  # a timeout needs a task
            async with asyncio.timeout(self._patience):
                return await asyncio.wrap_future(reading)
        except TimeoutError:
            raise _busy() from None

    async def rewrite(self, change: Callable[[bytes], bytes | None], body: bytes) -> bytes | None:
        """Return ``body`` as ``change`` makes it; ``None`` if nothing is to be changed, or too many wait for it.

        Args:
            change: returns ``None`` where nothing is to be changed; never raises.
            body: a body that was read before, not compressed.
        """
        try:
            return await self.change(change, body)
        except ApiError:
            return None

    async def change(self, change: Callable[[bytes], bytes | None], body: bytes) -> bytes | None:
        """Return ``body`` as ``change`` makes it, likewise, where a request cannot do without.

        Raises:
            ApiError: too many wait for it.
        """
        return await self._apply(change, body)

    def _decode_and(self, parse: Callable[[bytes], ParsedBody], coding: str, body: bytes) -> ParsedBody:
        if body:
            body = content_encoding.decoded(body, coding, self._max_bytes)
        return parse(body)


def _busy() -> ApiError:
    return ApiError(
        503,
        "Too many large requests are being read at the moment. Try again shortly.",
        reason="overloaded",
        kind=SERVICE_UNAVAILABLE,
        code="overloaded",
        headers={"retry-after": str(RETRY_AFTER_SECONDS)},
    )
