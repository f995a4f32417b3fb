import asyncio
import errno
import gzip
import socket
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from tests.engines.engine_server import Connection, Handler, answering, sending, serving
from tests.ports import free_port
from tidegate.engines import fetch
from tidegate.engines.outcome import Outcome, ScrapeError

OK = b"HTTP/1.1 200 OK\r\n"
PAGE = b"up 1\n"


@pytest.fixture(name="session")
async def _session() -> AsyncIterator[aiohttp.ClientSession]:
    async with fetch.open_session() as session:
        yield session


@pytest.fixture(name="deaf")
def _deaf() -> Iterator[int]:
    """A port whose queue of connections is full, so that the kernel answers no more of them."""
    port = free_port()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield port
        for filler in fillers:
            filler.close()


async def get(session: aiohttp.ClientSession, address: str, *, seconds: float = 5.0, max_bytes: int = 1000) -> bytes:
    return await fetch.fetch(session, f"http://{address}/metrics", timeout_seconds=seconds, max_bytes=max_bytes)


async def failure(
    session: aiohttp.ClientSession, handler: Handler, *, seconds: float = 5.0, max_bytes: int = 1000
) -> ScrapeError:
    async with serving(handler) as server:
        with pytest.raises(ScrapeError) as caught:
            await get(session, server.address, seconds=seconds, max_bytes=max_bytes)
    assert "\n" not in caught.value.reason
    return caught.value


async def test_a_page_is_fetched_uncompressed_and_without_credentials(session: aiohttp.ClientSession) -> None:
    async with serving(answering(PAGE)) as server:
        assert await get(session, server.address) == PAGE
        head = server.heads[0].lower()
    assert head.startswith("get /metrics http/1.1\r\n")
    assert "\r\naccept-encoding: identity\r\n" in head
    assert "authorization" not in head
    assert "cookie" not in head


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"\r\n" + PAGE,
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nup \r\n2\r\n1\n\r\n0\r\n\r\n",
        OK + b"Content-Encoding: identity\r\nContent-Length: 5\r\n\r\n" + PAGE,
        OK + b"Content-Type: text/plain; version=1.0.0; charset=utf-8\r\nContent-Length: 5\r\n\r\n" + PAGE,
        OK + b"Content-Type: nonsense\r\nContent-Length: 5\r\n\r\n" + PAGE,
    ],
)
async def test_every_way_to_send_a_page_is_understood(session: aiohttp.ClientSession, raw: bytes) -> None:
    async with serving(sending(raw)) as server:
        assert await get(session, server.address) == PAGE


async def test_no_bound_over_all_endpoints_keeps_one_waiting_for_another(session: aiohttp.ClientSession) -> None:
    assert session.connector is not None
    assert session.connector.limit == 0
    assert session.connector.limit_per_host == 1


async def test_connections_are_used_again(session: aiohttp.ClientSession) -> None:
    async with serving(answering(PAGE)) as server:
        for _ in range(3):
            await get(session, server.address)
        assert server.connections == 1
        assert len(server.heads) == 3


async def test_a_connection_that_was_reset_on_reuse_is_replaced_by_a_fresh_one(session: aiohttp.ClientSession) -> None:
    good = answering(PAGE)

    async def handler(connection: Connection) -> None:
        if connection.number == 1 and len(server.heads) == 2:
            raise ConnectionResetError
        await good(connection)

    async with serving(handler) as server:
        assert await get(session, server.address) == PAGE
        assert await get(session, server.address) == PAGE
        assert server.connections == 2


async def test_an_endpoint_that_always_resets_is_tried_once_more_and_no_further(session: aiohttp.ClientSession) -> None:
    async with serving(sending()) as server:
        with pytest.raises(ScrapeError) as caught:
            await get(session, server.address)
        assert server.connections == 2
    assert caught.value.outcome is Outcome.UNREADABLE


@pytest.mark.parametrize("status", ["204 No Content", "401 Unauthorized", "404 Not Found", "500 Oops", "501 No"])
async def test_any_other_status_than_200_is_a_failure(session: aiohttp.ClientSession, status: str) -> None:
    error = await failure(session, answering(b"" if status[0] == "2" else PAGE, status=status))
    assert error.outcome is Outcome.STATUS
    assert status[:3] in error.reason


async def test_a_redirect_is_not_followed(session: aiohttp.ClientSession) -> None:
    async with serving(answering(PAGE)) as elsewhere:
        location = f"Location: http://{elsewhere.address}/"
        error = await failure(session, answering(b"", location, status="301 Moved Permanently"))
        assert elsewhere.connections == 0
    assert error.outcome is Outcome.STATUS


@pytest.mark.parametrize(
    "handler",
    [
        answering(b"x" * 1001),
        sending(OK + b"Content-Length: 100000000\r\n\r\n" + b"x" * 10, then="hang"),
        sending(OK + b"\r\n", *[b"x" * 100] * 20, then="hang"),
        sending(OK + b"Transfer-Encoding: chunked\r\n\r\n", *[b"64\r\n" + b"x" * 100 + b"\r\n"] * 20, then="hang"),
    ],
    ids=["announced", "announced and withheld", "unannounced", "chunked"],
)
async def test_a_page_that_is_too_large_is_read_no_further(session: aiohttp.ClientSession, handler: Handler) -> None:
    error = await failure(session, handler)
    assert error.outcome is Outcome.TOO_LARGE


async def test_a_page_just_as_large_as_allowed_is_read(session: aiohttp.ClientSession) -> None:
    async with serving(answering(b"x" * 1000)) as server:
        assert len(await get(session, server.address)) == 1000


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP", "identity, gzip"])
async def test_a_compressed_page_is_refused_unread(session: aiohttp.ClientSession, encoding: str) -> None:
    error = await failure(session, answering(gzip.compress(b"x" * 100_000), f"Content-Encoding: {encoding}"))
    assert error.outcome is Outcome.UNREADABLE


@pytest.mark.parametrize(
    "handler",
    [
        sending(then="hang"),
        sending(OK, then="hang"),
        sending(OK + b"Content-Length: 500\r\n\r\n", *[b"u"] * 100, pause=0.05),
    ],
    ids=["silent", "headers alone", "a byte at a time"],
)
async def test_a_page_that_does_not_arrive_in_time_is_given_up(
    session: aiohttp.ClientSession, handler: Handler
) -> None:
    error = await failure(session, handler, seconds=0.2)
    assert error.outcome is Outcome.TIMEOUT


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        OK + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        OK + b"X: y\r\n" * 1000 + b"\r\n",
        OK + b"Content-Length: -5\r\n\r\nup 1\n",
        OK + b"Content-Length: 50\r\n\r\nup 1\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nup 1\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nup",
    ],
)
async def test_what_is_not_whole_and_valid_http_is_unreadable(session: aiohttp.ClientSession, raw: bytes) -> None:
    error = await failure(session, sending(raw))
    assert error.outcome is Outcome.UNREADABLE


async def test_a_refused_connection_means_unreachable(session: aiohttp.ClientSession) -> None:
    with pytest.raises(ScrapeError) as caught:
        await get(session, f"127.0.0.1:{free_port()}")
    assert caught.value.outcome is Outcome.UNREACHABLE
    assert caught.value.reason == "cannot connect: Connection refused"


async def test_a_connection_that_does_not_come_about_in_time_means_unreachable(
    session: aiohttp.ClientSession, deaf: int
) -> None:
    with pytest.raises(ScrapeError) as caught:
        await get(session, f"127.0.0.1:{deaf}", seconds=0.2)
    assert caught.value.outcome is Outcome.UNREACHABLE


async def test_after_a_reset_a_refusal_means_unreachable(session: aiohttp.ClientSession) -> None:
    async with serving(answering(PAGE)) as server:
        await get(session, server.address)
    with pytest.raises(ScrapeError) as caught:
        await get(session, server.address)
    assert caught.value.outcome is Outcome.UNREACHABLE


async def test_running_out_of_sockets_says_nothing_against_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    async def exhausted(*_args: object, **_options: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", exhausted)
    with pytest.raises(ScrapeError) as caught:
        await fetch.connect("127.0.0.1", 1, timeout_seconds=1.0)
    assert caught.value.outcome is Outcome.FAULT


async def test_connecting_asks_for_nothing() -> None:
    async with serving(answering(PAGE)) as server:
        await fetch.connect("127.0.0.1", server.port, timeout_seconds=5.0)
        assert not server.heads


async def test_connecting_to_nobody_means_unreachable(deaf: int) -> None:
    for port in (free_port(), deaf):
        with pytest.raises(ScrapeError) as caught:
            await fetch.connect("127.0.0.1", port, timeout_seconds=0.2)
        assert caught.value.outcome is Outcome.UNREACHABLE
