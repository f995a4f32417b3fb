"""The h2 transport on real sockets, with gRPC's own client."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from extproc import h2_transport
from extproc.h2_transport import serving
from extproc.transport import METHOD, SERVICE, Outcome
from protos import ext_proc_pb2
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import POST, body_message, headers_message
from tests.extproc.h2_client import HEALTH, PROCESS, Counts
from tests.extproc.test_grpc_transport import HoldingDesk

MAX_BODY_BYTES = 8_388_608


@asynccontextmanager
async def client(desk: FakeDesk, counts: Counts, grace: float = 0.2) -> AsyncIterator[grpc.aio.Channel]:
    """Serve ``desk``; yield gRPC's client of it. At the end no task is left."""
    before = asyncio.all_tasks()
    async with (
        asyncio.timeout(20),
        serving("127.0.0.1", 0, desk, counts, max_body_bytes=MAX_BODY_BYTES, grace=grace) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        yield channel
    assert len(counts.ended) == counts.started
    assert not [task for task in asyncio.all_tasks() - before if "extproc" in str(task.get_coro())]


async def exchanged(channel: grpc.aio.Channel, body: bytes) -> tuple[list[str | None], grpc.StatusCode]:
    call: Any = channel.stream_stream(f"/{SERVICE}/{METHOD}")()
    await call.write(headers_message())
    replies = [await call.read()]
    await call.write(body_message(body))
    replies.append(await call.read())
    kinds = [ext_proc_pb2.ProcessingResponse.FromString(reply).WhichOneof("response") for reply in replies]
    return kinds, await call.code()


async def test_grpcs_client_sees_no_difference() -> None:
    desk, counts = FakeDesk(), Counts()
    text = MAX_BODY_BYTES - len('{"model": "m", "messages": [{"content": ""}]}')
    body = b'{"model": "m", "messages": [{"content": "' + b"x" * text + b'"}]}'
    async with client(desk, counts) as channel:
        assert await exchanged(channel, body) == (["request_headers", "request_body"], grpc.StatusCode.OK)
    assert desk.requests[0].prompt.tokens == text + 10
    assert counts.ended == [Outcome.FINISHED]


async def test_grpcs_client_reads_status_and_words_of_an_error() -> None:
    async with client(FakeDesk(), Counts()) as channel:
        for path, code, words in (
            ("/a.b/c", grpc.StatusCode.UNIMPLEMENTED, "no such method"),
            (PROCESS, grpc.StatusCode.FAILED_PRECONDITION, "unexpected: BODY in phase WAIT_REQUEST"),
            (HEALTH, grpc.StatusCode.NOT_FOUND, "unknown service"),
        ):
            call: Any = channel.unary_unary(path)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(body_message())
            assert (caught.value.code(), caught.value.details()) == (code, words)
        check: Any = channel.unary_unary(HEALTH)
        assert await check(b"") == b"\x08\x01"


async def test_five_hundred_streams_at_once_are_all_decided() -> None:
    desk, counts = FakeDesk(), Counts()
    body = b'{"model": "m", "messages": [{"content": "hello"}]}'
    async with client(desk, counts) as channel:
        ends = await asyncio.gather(*(exchanged(channel, body) for _ in range(500)))
    assert {code for _, code in ends} == {grpc.StatusCode.OK}
    assert len(desk.live) == len(counts.ended) == 500


async def test_clients_that_leave_at_any_moment_leave_nothing() -> None:
    desk, counts = FakeDesk(), Counts()
    async with client(desk, counts) as channel:

        async def leaves(turns: int) -> None:
            call: Any = channel.stream_stream(PROCESS)()
            task = asyncio.ensure_future(call.write(headers_message()))
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            call.cancel()
            task.cancel()  # gRPC's client would wait for ever for a stream that it never opened
            await asyncio.gather(task, return_exceptions=True)

        await asyncio.gather(*(leaves(number % 12) for number in range(300)))
        await exchanged(channel, b'{"model": "m", "messages": [{"content": "hello"}]}')
    assert (desk.live, counts.ended.count(Outcome.FAILED)) == ({"r1"}, 0)


async def test_a_server_that_stops_under_a_client_tells_it_that_it_is_unavailable() -> None:
    desk, counts = HoldingDesk(), Counts()
    serving_here = serving("127.0.0.1", 0, desk, counts, max_body_bytes=MAX_BODY_BYTES, grace=0.1)
    async with asyncio.timeout(20):
        port = await serving_here.__aenter__()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.stream_stream(PROCESS)()
            await call.write(headers_message())
            await call.read()
            await call.write(body_message())
            await desk.holding.wait()
            await serving_here.__aexit__(None, None, None)
            assert (await call.code(), await call.details()) == (grpc.StatusCode.UNAVAILABLE, "the server stops")
    assert (desk.live, counts.ended) == (set(), [Outcome.CANCELLED])


async def test_a_port_that_is_taken_is_an_os_error_and_nothing_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            async with serving("127.0.0.1", port, FakeDesk(), Counts(), max_body_bytes=1024, grace=0):
                pass


async def test_what_is_raised_while_it_serves_is_raised_as_it_is() -> None:
    with pytest.raises(LookupError, match="mine"):
        async with serving("127.0.0.1", 0, FakeDesk(), Counts(), max_body_bytes=1024, grace=0):
            raise LookupError("mine")


async def test_too_many_connections_are_one_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(h2_transport, "CONNECTIONS", 1)
    async with serving("127.0.0.1", 0, FakeDesk(), Counts(), max_body_bytes=1024, grace=0.05) as port:
        pairs = []
        for number in range(4):
            pairs.append(await asyncio.open_connection("127.0.0.1", port))
            if not number:
                assert await pairs[0][0].readexactly(9)
        for reader, writer in pairs[1:]:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        pairs[0][1].close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_an_unknown_path_of_a_request_is_answered_with_404_inside_an_ok_stream() -> None:
    async with client(FakeDesk(), Counts()) as channel:
        call: Any = channel.stream_stream(PROCESS)()
        await call.write(headers_message({**POST, ":path": "/nowhere"}))
        reply = ext_proc_pb2.ProcessingResponse.FromString(await call.read())
        assert (reply.immediate_response.status.code, await call.code()) == (404, grpc.StatusCode.OK)
