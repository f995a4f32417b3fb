"""Asking the engine beside us."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.ports import free_port
from tidegate.agent.probe import EngineState, UrlError, checked, probe

HERE = "127.0.0.1"


@contextlib.asynccontextmanager
async def engine(answer: bytes | None) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Answer everything with ``answer``, or with nothing at all; yields the port and the requests' first lines."""
    asked: list[bytes] = []
    over = asyncio.Event()
    serving: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.append(task)
        with contextlib.suppress(ConnectionError):
            asked.append(await reader.readline())
            if answer is None:
                await over.wait()
            else:
                writer.write(answer)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    port = free_port()
    server = await asyncio.start_server(serve, HERE, port)
    try:
        yield port, asked
    finally:
        over.set()
        server.close()
        await asyncio.gather(*serving)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("200 OK", EngineState.ANSWERS),
        ("204 No Content", EngineState.ANSWERS),
        ("301 Moved", EngineState.BAD_STATUS),
        ("503 Service Unavailable", EngineState.BAD_STATUS),
    ],
)
async def test_the_status_says_how_the_engine_is(status: str, state: EngineState) -> None:
    answer = f"HTTP/1.1 {status}\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n".encode()
    async with engine(answer) as (port, asked):
        found = await probe(checked(f"http://{HERE}:{port}"), 10.0)
        assert (found.state, found.http_status) == (state, int(status.split(maxsplit=1)[0]))
        assert [line.split()[:2] for line in asked] == [[b"GET", b"/health"]]


async def test_a_body_without_an_end_is_not_waited_for() -> None:
    async with engine(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000000\r\n\r\n") as (port, _):
        found = await probe(f"http://{HERE}:{port}/health", 10.0)
        assert found.state is EngineState.ANSWERS


async def test_an_engine_that_takes_connections_and_says_nothing_is_silent() -> None:
    async with engine(None) as (port, _):
        found = await probe(f"http://{HERE}:{port}/health", 0.1)
        assert (found.state, found.http_status) == (EngineState.SILENT, None)
        assert found.seconds >= 0.1
        assert (await probe(f"tcp://{HERE}:{port}", 10.0)).state is EngineState.ANSWERS


@pytest.mark.parametrize("scheme", ["http", "tcp"])
async def test_an_engine_that_is_not_there_refuses(scheme: str) -> None:
    assert (await probe(f"{scheme}://{HERE}:{free_port()}", 10.0)).state is EngineState.REFUSES


async def test_what_is_not_http_refuses() -> None:
    async with engine(b"\x00\x01nonsense\r\n\r\n") as (port, _):
        assert (await probe(f"http://{HERE}:{port}/", 10.0)).state is EngineState.REFUSES


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("http://h:8000", "http://h:8000/health"),
        ("http://h:8000/", "http://h:8000/health"),
        ("https://h/v1/models?a=1", "https://h/v1/models?a=1"),
        ("tcp://h:8000", "tcp://h:8000"),
        ("tcp://[::1]:8000/x", "tcp://[::1]:8000"),
    ],
)
def test_a_url_without_a_path_gets_that_of_engines(given: str, asked: str) -> None:
    assert checked(given) == asked


@pytest.mark.parametrize(
    "url", ["", "h:8000", "tcp://h", "file:///etc/passwd", "http://", "http://u:p@h/", "http://h:99999", "http://h/\n"]
)
def test_what_cannot_be_asked_is_refused(url: str) -> None:
    with pytest.raises(UrlError, match="expected"):
        checked(url)
