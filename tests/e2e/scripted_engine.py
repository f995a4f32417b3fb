"""An engine that answers what a test wrote down, byte by byte, in a thread of the test's own."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from tests.ports import free_port

SSE = {"content-type": "text/event-stream; charset=utf-8"}


@dataclass(frozen=True)
class Script:
    """One answer.

    Attributes:
        chunks: the body, in pieces that are sent one after another.
        headers: of the answer.
        status: of the answer, too.
        pause: seconds between two pieces.
        breaks: the connection is broken off after the last piece.
        gate: what is waited for after half of the pieces.
    """

    chunks: Sequence[bytes]
    headers: Mapping[str, str] = field(default_factory=lambda: SSE)
    status: int = 200
    pause: float = 0.0
    breaks: bool = False
    gate: threading.Event | None = None


@dataclass
class ScriptedEngine:
    """Answers a request by the script that its ``user`` field names, else by the one named ``""``."""

    port: int
    scripts: dict[str, Script] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    left: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.bodies.append(raw)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        try:
            name = json.loads(raw).get("user", "")
        except (ValueError, AttributeError):
            name = ""
        script = self.scripts.get(name, self.scripts.get("", Script([])))
        response = web.StreamResponse(status=script.status, headers=dict(script.headers))
        await response.prepare(request)
        try:
            for number, chunk in enumerate(script.chunks):
                if script.gate is not None and number == len(script.chunks) // 2:
                    assert await asyncio.to_thread(script.gate.wait, 60)
                await response.write(chunk)
                await asyncio.sleep(script.pause)
        except (ConnectionError, asyncio.CancelledError):
            self.left += 1
            raise
        if script.breaks and request.transport is not None:
            request.transport.abort()
        return response


@contextlib.contextmanager
def scripted_engine() -> Iterator[ScriptedEngine]:
    """Run one."""
    engine, started = ScriptedEngine(free_port()), threading.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", engine.answer)
        runner = web.AppRunner(app, shutdown_timeout=1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", engine.port).start()
        started.set()
        await over.wait()
        await runner.cleanup()

    over = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(10)
        yield engine
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()
