import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from bench import load

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[int]:
    async with await asyncio.start_server(handler, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]


async def read_request(reader: asyncio.StreamReader) -> bytes | None:
    """Return the next request's body; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None


def answering(*answers: bytes) -> tuple[Handler, list[bytes]]:
    """Return a handler that gives each connection these answers, the last again and again, and what it received."""
    received: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = list(answers)
        while (body := await read_request(reader)) is not None:
            received.append(body)
            writer.write(left[0])
            if len(left) > 1:
                left.pop(0)
        writer.close()

    return handle, received


def requests(*bodies: bytes) -> list[bytes]:
    return [load.post("/", "test", body) for body in bodies]


async def test_the_bound_on_requests_holds_over_all_connections() -> None:
    handler, received = answering(OK)
    async with server(handler) as port:
        result = await load.run("127.0.0.1", port, requests(b"a", b"b"), connections=3, seconds=10, max_requests=20)
    assert result.answered == len(result.latencies) == len(received) == 20
    assert result.not_answered == 0
    assert received.count(b"a") == received.count(b"b") == 10
    assert 0 < result.seconds < 10
    assert all(0 < latency < 10 for latency in result.latencies)


async def test_the_bound_on_time_holds() -> None:
    handler, _ = answering(OK)
    async with server(handler) as port, asyncio.timeout(10):
        result = await load.run("127.0.0.1", port, requests(b"a"), connections=2, seconds=0.2, max_requests=10**9)
    assert result.answered > 0
    assert result.not_answered == 0


async def test_an_error_status_counts_as_not_answered_and_gives_no_latency() -> None:
    handler, _ = answering(b"HTTP/1.1 503 busy\r\ncontent-length: 0\r\n\r\n", OK)
    async with server(handler) as port:
        result = await load.run("127.0.0.1", port, requests(b"a"), connections=1, seconds=10, max_requests=5)
    assert result.statuses == {503: 1, 200: 4}
    assert result.not_answered == 1
    assert len(result.latencies) == 4


async def test_a_connection_that_the_server_closes_is_opened_again() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        writer.close()

    async with server(once) as port:
        result = await load.run("127.0.0.1", port, requests(b"a"), connections=2, seconds=10, max_requests=6)
    assert result.answered == 6
    assert result.not_answered == 0


@pytest.mark.parametrize(
    ("answer", "reason"), [(OK[:-1], "connection lost"), (b"nonsense\r\n\r\n", "malformed response")]
)
async def test_a_request_without_a_whole_response_is_a_failure(answer: bytes, reason: str) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        writer.close()

    async with server(cut) as port:
        result = await load.run("127.0.0.1", port, requests(b"a"), connections=1, seconds=10, max_requests=3)
    assert result.failures == {reason: 3}
    assert result.answered == 0


async def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "GRACE_SECONDS", 0.1)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_request(reader) is not None:
            pass
        writer.close()

    async with server(silent) as port, asyncio.timeout(10):
        result = await load.run("127.0.0.1", port, requests(b"a"), connections=2, seconds=0.1, max_requests=100)
    assert result.failures == {"no response in time": 2}
    assert result.seconds == 0


async def test_nobody_listening_is_a_failure_and_no_exception() -> None:
    async with server(answering(OK)[0]) as port:
        pass
    result = await load.run("127.0.0.1", port, requests(b"a"), connections=1, seconds=0.1, max_requests=100)
    assert result.answered == 0
    assert set(result.failures) == {"not connected"}


@pytest.mark.parametrize("size", [200, 4096])
def test_bodies_have_exactly_the_size_asked_for_and_are_chats(size: int) -> None:
    bodies = load.chat_bodies(size, 8, seed=3)
    assert {len(body) for body in bodies} == {size}
    assert len(set(bodies)) == 8
    assert bodies == load.chat_bodies(size, 8, seed=3)
    assert bodies != load.chat_bodies(size, 8, seed=4)
    for body in bodies:
        assert json.loads(body)["messages"][0]["role"] == "user"


def test_a_size_without_room_for_text_is_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        load.chat_bodies(20, 1, seed=0)
