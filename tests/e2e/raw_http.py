"""HTTP/1.1 written byte by byte, as no library would."""

import asyncio
import re
from typing import NamedTuple

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"


class Answer(NamedTuple):
    """What came back on one connection.

    ``statuses`` are those of all answers in order, ``closed`` says whether the server ended the connection by itself.
    """

    statuses: list[int]
    raw: bytes
    closed: bool

    @property
    def body(self) -> bytes:
        """What follows the head of the first answer."""
        return self.raw.partition(b"\r\n\r\n")[2]


async def send(port: int, *pieces: bytes, pause: float = 0.0, wait: float = 3.0) -> Answer:
    """Send ``pieces`` to ``port`` and return what comes back until the server closes, or is silent for ``wait``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    raw, closed = b"", False

    async def write() -> None:
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
        except ConnectionError:
            pass  # it was answered before all of it was sent

    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write())
        try:
            while True:
                async with asyncio.timeout(wait + (pause * len(pieces))):
                    data = await reader.read(1 << 20)
                if not data:
                    closed = True
                    break
                raw += data
        except ConnectionResetError:
            closed = True
        except TimeoutError:
            pass
        writing.cancel()
    writer.close()
    return Answer([int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", raw)], raw, closed)
