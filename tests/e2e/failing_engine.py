"""An engine that fails as a request says it should, down to the bytes on the connection, in a thread of its own."""

import asyncio
import contextlib
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.ports import free_port

DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
BUSY = "The engine is currently busy and cannot accept new requests."
ANSWERS = {
    "served": (200, "{}"),
    "bad_request": (400, "no"),
    "too_long": (413, "no"),
    "too_many": (429, "no"),
    "failed": (500, "no"),
    "dead": (500, DEAD),
    "full_memory": (500, "CUDA out of memory. Tried to allocate 2.00 GiB"),
    "not_supported": (501, "no"),
    "bad_gateway": (502, "no"),
    "busy": (503, BUSY),
    "unavailable": (503, "no"),
}
CHUNKED = {"unmeasured": (503, "no"), "nothing": (500, "")}
"""Errors whose length is not told beforehand."""
STREAMS: dict[str, list[Any]] = {
    "stream": ["one", "[DONE]"],
    "error_in_stream": ["one", {"error": {"message": "it broke", "code": 500}}, "[DONE]"],
    "dead_in_stream": ["one", {"error": {"message": DEAD, "code": 500}}, "[DONE]"],
    "busy_in_stream": [{"error": {"message": BUSY, "code": 503}}],
    "bad_request_in_stream": [{"error": {"message": "no", "code": 400}}],
    "quoted": [{"text": '{"error": {"message": "out of memory"}}\nevent: error'}, "[DONE]"],
    "no_error": [{"error": None, "text": "one"}, "[DONE]"],
    "overloaded": [b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n'],
    "failed_response": [b'event: response.failed\ndata: {"response":{"error":{"code":"server_error"}}}\n\n'],
    "cut_off": ["one"],
    "stands_still": ["one"],
}


COMMENTING = ("comments", "one_then_comments", "pings", "split", "late", "in_pieces")
"""Streams with comments in them: such that bring nothing else, after one event or none, and two that are only slow."""
COMMENT_SECONDS, LATE_SECONDS = 0.1, 2.0


async def _comment(writer: asyncio.StreamWriter, word: str) -> None:
    """Send comments for ever, or again and again for a while with events between them, and an end."""
    clock = asyncio.get_running_loop().time
    began = clock()

    async def send(*pieces: bytes) -> None:
        for piece in pieces:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(COMMENT_SECONDS / len(pieces))

    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    pings = (ping + ping, b": and\r\n\r\n" + ping, ping.replace(b": ", b":"))
    comment = {"pings": pings, "split": (b": keep-", b"alive\n\n")}
    pieces = comment.get(word, (b": keep-alive\n\n",))
    if word == "one_then_comments":
        await send(b'data: {"one": 1}\n: and', b" more")
    elif word == "in_pieces":  # of an event, each of which would be a comment if it stood at a line's beginning
        await send(b'data: {"one": "')
        while clock() - began < LATE_SECONDS:
            await send(b":")
        await send(b'"}\n\n')
    while word not in ("late", "in_pieces"):
        await send(*pieces)
    while word == "late" and clock() - began < 3 * LATE_SECONDS:
        quiet_until = clock() + LATE_SECONDS
        while clock() < quiet_until:
            await send(*pieces)
        await send(b'data: {"one": 1}\n\n')
    await send(b"data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")


@dataclass
class FailingEngine:
    """Does what a request asks for in ``user``, a word of the above.

    Attributes:
        port: where it listens.
        seen: how often it was asked for each word.
        pause: seconds that it takes to answer.
        order: the ports of all engines in the order in which they were asked.
    """

    port: int
    seen: Counter[str] = field(default_factory=Counter)
    pause: float = 0.0
    order: list[int] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            while True:
                headers = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(headers.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
                body = json.loads(await reader.readexactly(length) or b"{}")
                word = body.get("user", "served")
                self.seen[word] += 1
                self.order.append(self.port)
                await asyncio.sleep(self.pause)
                if not await self._answer(word, writer):
                    break
        writer.close()

    async def _answer(self, word: str, writer: asyncio.StreamWriter) -> bool:
        """Answer; return whether the connection lives on."""
        if word == "reset":
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        if word == "silent":
            await asyncio.sleep(60)
            return False
        if word in ANSWERS:
            status, text = ANSWERS[word]
            body = text if status == 200 else json.dumps({"error": {"message": text, "code": status}})
            head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write((head + body).encode())
            return True
        if word in CHUNKED:
            status, text = CHUNKED[word]
            writer.write(f"HTTP/1.1 {status} X\r\ntransfer-encoding: chunked\r\n\r\n".encode())
            writer.write((f"{len(text):x}\r\n{text}\r\n" if text else "").encode() + b"0\r\n\r\n")
            return True
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        if word in COMMENTING:
            await _comment(writer, word)
            return True
        for event in STREAMS[word]:
            text = event if event == "[DONE]" else json.dumps(event, default=str)
            data = event if isinstance(event, bytes) else f"data: {text}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
            await asyncio.sleep(0.02)
        if word == "stands_still":
            await asyncio.sleep(60)
        if word in ("cut_off", "stands_still"):
            return False
        writer.write(b"0\r\n\r\n")
        return True


@contextlib.contextmanager
def failing_engines(count: int) -> Iterator[list[FailingEngine]]:
    """Run ``count`` of them."""
    order: list[int] = []
    engines = [FailingEngine(free_port(), order=order) for _ in range(count)]
    loop, started, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with contextlib.AsyncExitStack() as stack:
            for engine in engines:
                server = await asyncio.start_server(engine.serve, "127.0.0.1", engine.port)
                stack.callback(server.close)
            started.set()
            await over.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(10)
        yield engines
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()
