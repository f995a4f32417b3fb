"""Many streamed answers that are open at the same time: an engine that holds them, and clients that read them."""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.e2e.stack import Stack
from tests.ports import free_port

BODY = b'{"model": "sim-test", "stream": true, "messages": [{"role": "user", "content": "hello"}]}'
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: first\n\n"
OPENING = 100
"""Connections that are being opened at a time."""


class HoldingEngine:
    """Sends the first event of every answer, and the last one when it is told. It runs in a thread of its own.

    Attributes:
        port: where it listens.
        held: how many answers it has begun.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.held = 0
        self._loop = asyncio.new_event_loop()
        self._release = asyncio.Event()
        self._stop = asyncio.Event()
        self._listening = threading.Event()

    def stop_listening(self) -> None:
        """Take no connection any more; the answers that have begun go on."""
        self._loop.call_soon_threadsafe(self._stop.set)

    def release(self) -> None:
        """End every answer."""
        self._loop.call_soon_threadsafe(self._release.set)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run it as long as the block."""
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        thread.start()
        try:
            assert self._listening.wait(10)
            yield
        finally:
            self.release()
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(30)
            self._loop.close()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:

            def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                tasks.create_task(self._serve(reader, writer))

            async with await asyncio.start_server(serve, "127.0.0.1", self.port, backlog=1024):
                self._listening.set()
                await self._stop.wait()
            # What was accepted at the last moment is served by a task too.
            await asyncio.sleep(0.1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):  # and no look whether we are there
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
                writer.write(HEAD)
                self.held += 1
                await self._release.wait()
                writer.write(b"data: [DONE]\n\n")
        await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def hold(stack: Stack, engines: Sequence[HoldingEngine], streams: int) -> Counter[bool]:
    """Open ``streams``, see that all are open, let them end; return how many came whole."""
    opening = asyncio.Semaphore(OPENING)
    begun: list[bytes] = []

    async def stream() -> bool:
        async with opening:
            reader, writer = await asyncio.open_connection("127.0.0.1", stack.config["listener"]["port"])
            writer.write(REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
        begun.append(head.partition(b"\r\n")[0])
        text = await reader.read()
        await _close(writer)
        return b" 200 " in head and b"data: first" in text and b"data: [DONE]" in text

    async with asyncio.timeout(90), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(stream()) for _ in range(streams)]
        while len(begun) < streams:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert Counter(begun) == {b"HTTP/1.1 200 OK": streams}
        assert sum(engine.held for engine in engines) == streams
        assert await asyncio.to_thread(stack.total, "tidegate_inflight_requests") == streams
        for engine in engines:
            engine.release()
    return Counter(task.result() for task in running)
