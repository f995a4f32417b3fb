"""Engines that stream for seconds, are scaled out and in, and end as pods do; and clients that never stop asking."""

import asyncio
import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from typing import Any

import aiohttp
from aiohttp import web

from tests.e2e.stack import MODEL, Stack

EVENTS, PAUSE_SECONDS = 12, 0.15
"""Events of an answer, and the time between two."""

GRACE_SECONDS = 30.0
PAGE = "vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc {usage}\n"


class StreamingEngine:
    """One engine.

    Attributes:
        address: its ``ip:port``.
        loading: it listens, and can do nothing yet: 503 to everything.
        running: answers that it is giving.
        most: the most of these at once, since that was last looked at.
        begun: answers that it began; ``ended``, those that it has given whole.
        too_early: requests that came while it was loading.
    """

    def __init__(self, address: str, *, loading: bool = False) -> None:
        self.address = address
        self.loading = loading
        self.running = self.most = self.begun = self.ended = self.too_early = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/{path:.*}", self._answer)
        host, _, port = self.address.rpartition(":")
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=GRACE_SECONDS, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, int(port)).start()

    async def terminate(self) -> None:
        """Do as servers do on SIGTERM: take no connection, end idle ones, give the answers that are running."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        if self.loading:
            return web.Response(status=503)
        return web.Response(text=PAGE.format(running=self.running, usage=self.running / 100))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        if self.loading:
            self.too_early += 1
            return web.Response(status=503)
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            answer = web.StreamResponse(headers={"content-type": "text/event-stream", "x-served-by": self.address})
            await answer.prepare(request)
            for number in range(EVENTS):
                chunk = {
                    "id": "1",
                    "object": "chat.completion.chunk",
                    "choices": [{"delta": {"content": f"{number} "}}],
                }
                await answer.write(b"data: %s\n\n" % json.dumps(chunk).encode())
                await asyncio.sleep(PAUSE_SECONDS)
            await answer.write(b"data: [DONE]\n\n")
            await answer.write_eof()
            self.ended += 1
            return answer
        finally:
            self.running -= 1


class Scene:
    """A loop in a thread of its own, in which engines and clients run.

    Attributes:
        outcomes: how requests ended: ``whole``, or what was wrong.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.outcomes: Counter[str] = Counter()
        self._over = asyncio.Event()

    def do(self, work: Coroutine[Any, Any, Any], seconds: float = 60.0) -> Any:
        """Run ``work`` there, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    def begin(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run ``work`` there; return its future."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    @contextlib.contextmanager
    def running(self) -> Iterator["Scene"]:
        thread = threading.Thread(target=self.loop.run_forever)
        thread.start()
        try:
            yield self
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            thread.join(30)
            self.loop.close()

    @contextlib.contextmanager
    def asking(self, stack: Stack, clients: int) -> Iterator[None]:
        """Have ``clients`` ask all the time; at the end, wait until they have their answers."""
        asked = asyncio.run_coroutine_threadsafe(
            self._ask_for_ever(f"{stack.clients}/chat/completions", clients), self.loop
        )
        try:
            yield
        finally:
            self.loop.call_soon_threadsafe(self._over.set)
            asked.result(60)

    async def _ask_for_ever(self, url: str, clients: int) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as tasks:
            for number in range(clients):
                tasks.create_task(self._client(session, url, number / clients))

    async def _client(self, session: aiohttp.ClientSession, url: str, share: float) -> None:
        await asyncio.sleep(share * EVENTS * PAUSE_SECONDS)
        while not self._over.is_set():
            self.outcomes[await _asked(session, url)] += 1


async def _asked(session: aiohttp.ClientSession, url: str) -> str:
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "hello"}], "max_tokens": EVENTS}
    try:
        async with asyncio.timeout(60), session.post(url, json=body) as answer:
            text = await answer.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"broken: {type(error).__name__}"
    if answer.status != 200:
        return f"{answer.status}: {text[:200]}"
    return "whole" if text.count("data: ") == EVENTS + 1 and text.endswith("data: [DONE]\n\n") else f"cut: {text[-60:]}"


@contextlib.contextmanager
def fleet(scene: Scene, *engines: StreamingEngine) -> Iterator[None]:
    """Run ``engines`` as long as the block; those that were not terminated end with it."""
    for engine in engines:
        scene.do(engine.start())
    try:
        yield
    finally:

        async def end() -> None:
            await asyncio.gather(*(engine.terminate() for engine in engines))

        scene.do(end())


def waited_for(scene: Scene, seconds: float = 60.0) -> None:
    """Wait until a few more requests have ended."""
    enough, deadline = scene.outcomes.total() + 10, time.monotonic() + seconds
    while scene.outcomes.total() < enough:
        assert time.monotonic() < deadline, scene.outcomes
        time.sleep(0.05)
