"""Servers that stand in for engines, each bad in its own way."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.ports import free_port

Handler = Callable[["Connection"], Awaitable[None]]


class Connection:
    """One connection of a client, to be served by hand."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.reader = reader
        self.writer = writer

    async def request(self) -> str:
        """Wait for the next request; return its head."""
        return (await self.reader.readuntil(b"\r\n\r\n")).decode()

    async def send(self, data: bytes) -> None:
        """Send ``data`` as it is."""
        self.writer.write(data)
        await self.writer.drain()


class EngineServer:
    """Listens on a port of its own and serves every connection by ``handler``, which may be exchanged at any time."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.heads: list[str] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Refuse connections and cut those that exist."""
        if self._server is None:
            return
        self._server.close()
        serving = [*self._serving]
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        self._server = None

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(Connection(self.connections, reader, writer)))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, connection: Connection) -> None:
        try:
            while True:
                self.heads.append(await connection.request())
                await self.handler(connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connection.writer.transport.abort()


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[EngineServer]:
    """Run an ``EngineServer`` for the length of a block."""
    server = EngineServer(handler)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def answering(body: bytes | str, *headers: str, status: str = "200 OK") -> Handler:
    """Return a handler that answers every request with ``body`` and keeps the connection."""
    if isinstance(body, str):
        body = body.encode()
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]).encode()

    async def handler(connection: Connection) -> None:
        await connection.send(head + b"\r\n\r\n" + body)

    return handler


def sending(*pieces: bytes, pause: float = 0.0, then: str = "close") -> Handler:
    """Return a handler that answers with raw ``pieces``, ``pause`` seconds apart, then closes or hangs."""

    async def handler(connection: Connection) -> None:
        for piece in pieces:
            await connection.send(piece)
            await asyncio.sleep(pause)
        if then == "hang":
            await asyncio.sleep(3600)
        raise ConnectionResetError

    return handler
