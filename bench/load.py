"""A closed loop of HTTP/1.1 requests over keep-alive connections, bounded by count and by time.

Each connection sends its next request when the response to the last is complete, so N connections hold N requests in
flight. The loop lives in protocol callbacks: no task switch stands between a response and the next request.
"""

import asyncio
import itertools
import json
import random
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from bench.http1 import FramingError, Response

CONNECT_SECONDS = 5.0
GRACE_SECONDS = 10.0  # for the responses that are under way when the time is over
PAUSE_AFTER_FAILURE_SECONDS = 0.01
LEAVE_WITHIN_SECONDS = 0.012  # about as long as an answer takes here
_WORDS = ("river", "stone", "amber", "quiet", "seven", "letter", "window", "harbor", "engine", "morning", "of", "the")


@dataclass(slots=True)
class Result:
    """What one run saw.

    Attributes:
        latencies: seconds from the request's first byte to the response's last, of the responses with status 200.
        statuses: number of complete responses by status code.
        failures: number of requests without a complete response, by reason.
        seconds: from the first request to the last response.
        left: number of requests that were given up.
    """

    latencies: "array[float]" = field(default_factory=lambda: array("d"))
    statuses: Counter[int] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    left: int = 0

    @property
    def answered(self) -> int:
        """Number of responses with status 200."""
        return self.statuses[200]

    @property
    def not_answered(self) -> int:
        """Number of requests that got something else, or nothing."""
        return self.statuses.total() - self.answered + self.failures.total()


def chat_bodies(size: int, count: int, seed: int) -> list[bytes]:
    """Return ``count`` different chat completion requests of exactly ``size`` bytes each, drawn from ``seed``.

    Raises:
        ValueError: ``size`` is too small for the JSON around the text.
    """
    rng = random.Random(seed)

    def body(text: str) -> bytes:
        return json.dumps(
            {"model": "bench", "messages": [{"role": "user", "content": text}], "max_tokens": 16}
        ).encode()

    room = size - len(body(""))
    if room < 1:
        raise ValueError(f"a chat request takes at least {len(body('')) + 1} bytes, not {size}")
    texts = (" ".join(rng.choices(_WORDS, k=room // 2 + 1))[:room] for _ in range(count))
    return [body(text) for text in texts]


def post(path: str, host: str, body: bytes) -> bytes:
    """Return the bytes of one POST request with a JSON ``body``."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Run:
    """What the connections of one run share: what to send, when to stop, what was seen."""

    def __init__(
        self, requests: Sequence[bytes], seconds: float, max_requests: int, pause: float, leave_every: int
    ) -> None:
        self.result = Result()
        self._leave_every = leave_every
        self.pause = pause
        self.started = time.perf_counter()
        self.deadline = self.started + seconds
        self._requests = itertools.cycle(requests)
        self._left = max_requests

    @property
    def over(self) -> bool:
        return self._left <= 0 or time.perf_counter() >= self.deadline

    def take(self) -> bytes:
        self._left -= 1
        return next(self._requests)

    def leaves(self) -> bool:
        """Return whether the request that was taken last is one to give up."""
        return self._leave_every > 0 and self._left % self._leave_every == 0

    def record(self, status: int, sent: float) -> None:
        now = time.perf_counter()
        self.result.statuses[status] += 1
        if status == 200:
            self.result.latencies.append(now - sent)
        self.result.seconds = now - self.started


class _Connection(asyncio.Protocol):
    """One connection: at most one request in flight."""

    def __init__(self, run: _Run) -> None:
        self.closed = asyncio.get_running_loop().create_future()
        self.clean = True
        self._run = run
        self._response: Response | None = None
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        self._send()

    def _send(self) -> None:
        if self._run.over or self._transport.is_closing():
            self._transport.close()
            return
        self._response = Response()
        request = self._run.take()
        self._sent = time.perf_counter()
        self._transport.write(request)
        if self._run.leaves():
            delay = random.uniform(0, LEAVE_WITHIN_SECONDS)
            asyncio.get_running_loop().call_later(delay, self._leave, self._response)

    def _leave(self, response: Response) -> None:
        if self._response is response:
            self._run.result.left += 1
            self._response = None
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._response is None:
            self._fail("bytes without a request")
            return
        try:
            complete = self._response.feed(data)
        except FramingError:
            self._fail("malformed response")
            return
        if complete:
            closes = self._response.closes
            self._finish()
            if closes:
                self._transport.close()
            elif self._run.pause:
                asyncio.get_running_loop().call_later(self._run.pause, self._send)
            else:
                self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._response is not None:
            if exc is None and self._response.end_of_stream():
                self._finish()
            else:
                self._fail("connection lost")
        if not self.closed.done():
            self.closed.set_result(None)

    def _finish(self) -> None:
        assert self._response is not None
        self._run.record(self._response.status, self._sent)
        self._response = None

    def _fail(self, reason: str) -> None:
        self._run.result.failures[reason] += 1
        self._response = None
        self.clean = False
        self._transport.abort()

    def give_up(self) -> None:
        """End the connection now; a request in flight counts as failed."""
        if self._response is not None:
            self._fail("no response in time")
        self._transport.abort()


async def run(
    host: str,
    port: int,
    requests: Sequence[bytes],
    *,
    connections: int,
    seconds: float,
    max_requests: int,
    pause: float = 0.0,
    leave_every: int = 0,
) -> Result:
    """Send ``requests`` in turn, again and again, until ``seconds`` are over or ``max_requests`` were sent.

    Each connection waits ``pause`` seconds between a response and its next request. Of ``leave_every`` requests, one is
    given up if it is not answered at once.

    Returns within ``seconds`` plus ``CONNECT_SECONDS`` plus ``GRACE_SECONDS``.
    """
    shared = _Run(requests, seconds, max_requests, pause, leave_every)
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(_keep_connected(shared, host, port))
    return shared.result


async def _keep_connected(shared: _Run, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    while not shared.over:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(lambda: _Connection(shared), host, port)
        except (OSError, TimeoutError):
            shared.result.failures["not connected"] += 1
            await asyncio.sleep(PAUSE_AFTER_FAILURE_SECONDS)
            continue
        try:
            async with asyncio.timeout(shared.deadline - time.perf_counter() + GRACE_SECONDS):
                await connection.closed
        except TimeoutError:
            connection.give_up()
        if not connection.clean:
            await asyncio.sleep(PAUSE_AFTER_FAILURE_SECONDS)
