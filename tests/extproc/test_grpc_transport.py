import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from extproc import codec, grpc_transport, transport
from extproc.grpc_transport import handler, server_options
from extproc.transport import METHOD, SERVICE, Outcome
from protos import ext_proc_pb2
from tests.extproc.desks import ADDRESSES, FakeDesk
from tests.extproc.envoy_model import HELLO, POST, body_message, headers_message
from tidegate.telemetry.log import LogfmtFormatter
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.prompt import Prompt

MAX_BODY_BYTES = 8_388_608


class Streams:
    """Counts streams, and lets a test wait for the next that ends."""

    def __init__(self) -> None:
        self.started = 0
        self.ended: list[Outcome] = []
        self._new: asyncio.Queue[Outcome] = asyncio.Queue()

    def stream_started(self) -> None:
        self.started += 1

    def stream_ended(self, outcome: Outcome) -> None:
        self.ended.append(outcome)
        self._new.put_nowait(outcome)

    async def end(self) -> Outcome:
        async with asyncio.timeout(10):
            return await self._new.get()


Opened = Callable[[], "grpc.aio.StreamStreamCall[bytes, bytes]"]


@asynccontextmanager
async def served(desk: FakeDesk, streams: Streams) -> AsyncIterator[Opened]:
    """Serve ``desk`` on loopback; yield what opens a stream there."""
    server = grpc.aio.server(options=server_options(MAX_BODY_BYTES))
    server.add_generic_rpc_handlers((handler(desk, streams),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel.stream_stream(f"/{SERVICE}/{METHOD}")
    finally:
        await server.stop(None)


async def _status(call: Any) -> tuple[grpc.StatusCode, str]:
    async with asyncio.timeout(10):
        return await call.code(), await call.details()


async def _reply(call: Any) -> ext_proc_pb2.ProcessingResponse:
    async with asyncio.timeout(10):
        reply = await call.read()
    assert isinstance(reply, bytes), "the stream ended"
    return ext_proc_pb2.ProcessingResponse.FromString(reply)


async def test_a_stream_is_closed_with_ok_right_after_its_decision() -> None:
    desk, streams = FakeDesk(), Streams()
    async with served(desk, streams) as open_stream:
        call = open_stream()
        await call.write(headers_message())
        assert (await _reply(call)).WhichOneof("response") == "request_headers"
        await call.write(body_message())
        decision = await _reply(call)

        assert decision.request_body.response.clear_route_cache
        destination = decision.dynamic_metadata.fields["envoy.lb"].struct_value.fields["x-gateway-destination-endpoint"]
        assert destination.string_value == ",".join(ADDRESSES)
        assert await _status(call) == (grpc.StatusCode.OK, "")
        assert await streams.end() is Outcome.FINISHED
    assert (desk.live, desk.abandoned, streams.started) == ({"r1"}, [], 1)


async def test_a_refusal_finishes_the_stream_as_well() -> None:
    desk, streams = FakeDesk(), Streams()
    async with served(desk, streams) as open_stream:
        call = open_stream()
        await call.write(headers_message({**POST, ":path": "/nowhere"}))

        assert (await _reply(call)).immediate_response.status.code == 404
        assert await _status(call) == (grpc.StatusCode.OK, "")
        assert await streams.end() is Outcome.FINISHED


async def test_a_body_of_the_largest_size_is_taken() -> None:
    desk, streams = FakeDesk(), Streams()
    text = MAX_BODY_BYTES - len('{"model": "m", "messages": [{"content": ""}]}')
    body = b'{"model": "m", "messages": [{"content": "' + b"x" * text + b'"}]}'
    async with served(desk, streams) as open_stream:
        call = open_stream()
        await call.write(headers_message())
        await _reply(call)
        await call.write(body_message(body))

        assert (await _reply(call)).WhichOneof("response") == "request_body"
    assert len(body) == MAX_BODY_BYTES
    assert desk.requests[0].prompt.tokens == text + 10  # for the message


async def test_a_fault_of_ours_ends_the_stream_with_internal_and_no_word_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk, streams = FakeDesk(), Streams()
    desk.fault = RuntimeError("hello, says the prompt")
    async with served(desk, streams) as open_stream:
        call = open_stream()
        await call.write(headers_message())
        await _reply(call)
        await call.write(body_message())

        assert await _status(call) == (grpc.StatusCode.INTERNAL, "the decision failed")
        assert await streams.end() is Outcome.FAILED
    (record,) = [record for record in caplog.records if record.name == transport.__name__]
    line = LogfmtFormatter().format(record)
    assert 'level=error logger=extproc.transport msg="a stream failed" error=RuntimeError' in line
    assert "hello" not in line


async def test_a_message_out_of_turn_ends_the_stream_with_a_reason() -> None:
    desk, streams = FakeDesk(), Streams()
    async with served(desk, streams) as open_stream:
        call = open_stream()
        await call.write(body_message())

        assert await _status(call) == (grpc.StatusCode.FAILED_PRECONDITION, "unexpected: BODY in phase WAIT_REQUEST")
        assert await streams.end() is Outcome.FAILED


@pytest.mark.parametrize("sent", [0, 1])
async def test_a_half_close_before_the_decision_never_ends_with_ok(sent: int) -> None:
    desk, streams = FakeDesk(), Streams()
    async with served(desk, streams) as open_stream:
        call = open_stream()
        for _ in range(sent):
            await call.write(headers_message())
            await _reply(call)
        await call.done_writing()

        assert (await _status(call))[0] is grpc.StatusCode.CANCELLED
        assert await streams.end() is Outcome.CANCELLED


async def test_a_stream_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "STREAM_SECONDS", 0.05)
    desk, streams = FakeDesk(), Streams()
    async with served(desk, streams) as open_stream:
        call = open_stream()
        await call.write(headers_message())
        await _reply(call)

        assert (await _status(call))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await streams.end() is Outcome.FAILED


class HoldingDesk(FakeDesk):
    """Counts until it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.holding = asyncio.Event()

    async def count(self, model: str, prompt: Prompt, pool: str = "") -> TokenCount:
        self.holding.set()
        await asyncio.Event().wait()
        return TokenCount(0, CountSource.EXACT)


async def test_a_client_that_leaves_while_it_is_counted_reserves_nothing() -> None:
    desk, streams = HoldingDesk(), Streams()
    async with served(desk, streams) as open_stream:
        call = open_stream()
        await call.write(headers_message())
        await _reply(call)
        await call.write(body_message(HELLO))
        async with asyncio.timeout(10):
            await desk.holding.wait()
        call.cancel()

        assert await streams.end() is Outcome.CANCELLED
    assert (desk.requests, desk.live) == ([], set())


class FakeContext:
    """A servicer's context without a server: reads what it is given, and writes as it is told to."""

    def __init__(self, write: Callable[[int], Awaitable[None]], sent: tuple[bytes, ...] = ()) -> None:
        self._write, self._sent = write, iter(sent or (headers_message(), body_message()))
        self.written = 0
        self.aborted: grpc.StatusCode | None = None
        self.dead = False

    async def read(self) -> Any:
        await asyncio.sleep(0)
        return next(self._sent, grpc.aio.EOF)

    async def write(self, _: bytes) -> None:
        self.written += 1
        await self._write(self.written)

    async def abort(self, code: grpc.StatusCode, _: str) -> None:
        if self.dead:
            raise grpc.aio.BaseError
        self.aborted = code
        raise grpc.aio.AbortError


async def _serve(context: FakeContext) -> tuple[FakeDesk, Streams, BaseException | None]:
    desk, streams = FakeDesk(), Streams()
    task = asyncio.create_task(grpc_transport.serve(desk, streams, context))  # type: ignore[arg-type]
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    return desk, streams, outcome


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("dead", [False, True])
async def test_a_write_that_fails_is_a_client_that_left_and_releases_once(failing: int, dead: bool) -> None:
    async def write(number: int) -> None:
        if number == failing:
            raise grpc.aio.InternalError("the stream is gone")

    context = FakeContext(write)
    context.dead = dead
    desk, streams, outcome = await _serve(context)

    assert streams.ended == [Outcome.CANCELLED]
    assert (outcome is None) if dead else isinstance(outcome, grpc.aio.AbortError)
    assert desk.abandoned == (["r1"] if failing == 2 else [])
    assert not desk.live


@pytest.mark.parametrize("at", [1, 2])
async def test_a_cancellation_while_writing_releases_once(at: int) -> None:
    async def write(number: int) -> None:
        if number == at:
            _cancel()
        await asyncio.sleep(0)

    desk, streams, outcome = await _serve(FakeContext(write))

    assert isinstance(outcome, asyncio.CancelledError)
    assert streams.ended == [Outcome.CANCELLED]
    assert desk.abandoned == (["r1"] if at == 2 else [])
    assert not desk.live


@pytest.mark.parametrize("dead", [False, True])
async def test_an_envoy_that_ends_the_stream_as_soon_as_it_has_the_refusal_has_finished_it(dead: bool) -> None:
    async def write(_: int) -> None:
        if dead:
            raise grpc.aio.InternalError("the stream is gone")
        _cancel()
        await asyncio.sleep(0)

    desk, streams, _ = await _serve(FakeContext(write, (headers_message({**POST, ":path": "/nowhere"}),)))

    assert streams.ended == [Outcome.FINISHED]
    assert (len(desk.refusals), desk.abandoned) == (1, [])


async def test_a_cancellation_after_the_last_write_keeps_the_reservation() -> None:
    async def write(number: int) -> None:
        await asyncio.sleep(0)
        if number == 2:
            _cancel()  # takes effect at the next await, and there is none

    desk, streams, outcome = await _serve(FakeContext(write))

    assert isinstance(outcome, asyncio.CancelledError)
    assert (desk.live, desk.abandoned, streams.ended) == ({"r1"}, [], [Outcome.FINISHED])


async def test_a_reply_that_cannot_be_encoded_is_internal_and_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise ValueError("cannot be encoded")

    async def write(_: int) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(codec, "decision_on_body", fail)
    context = FakeContext(write)
    desk, streams, _ = await _serve(context)

    assert context.aborted is grpc.StatusCode.INTERNAL
    assert (desk.abandoned, streams.ended) == (["r1"], [Outcome.FAILED])


def _cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def test_many_streams_at_once_are_all_decided_and_all_counted() -> None:
    desk, streams = FakeDesk(), Streams()

    async with served(desk, streams) as open_stream:

        async def one(leaves: bool) -> None:
            call = open_stream()
            await call.write(headers_message())
            await _reply(call)
            if leaves:
                call.cancel()
                return
            await call.write(body_message())
            await _reply(call)
            assert (await _status(call))[0] is grpc.StatusCode.OK

        async with asyncio.timeout(30):
            await asyncio.gather(*(one(number % 3 == 0) for number in range(60)))
        for _ in range(60):
            await streams.end()

    assert streams.started == 60
    assert streams.ended.count(Outcome.FINISHED) == len(desk.live) == 40
    assert streams.ended.count(Outcome.CANCELLED) == 20


async def test_a_burst_of_more_streams_than_grpc_lets_wait_by_default_is_answered_in_full() -> None:
    desk, streams = FakeDesk(), Streams()
    nowhere = headers_message({**POST, ":path": "/nowhere"})

    async def answered(call: Any) -> grpc.StatusCode:
        try:
            await _reply(call)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return (await _status(call))[0]

    async with served(desk, streams) as open_stream:
        calls = [open_stream() for _ in range(2_500)]
        writes = [asyncio.ensure_future(call.write(nowhere)) for call in calls]
        await asyncio.sleep(0)
        # Meanwhile the streams arrive, and nobody takes them up.
        time.sleep(0.5)  # noqa: ASYNC251
        await asyncio.gather(*writes, return_exceptions=True)
        assert {await answered(call) for call in calls} == {grpc.StatusCode.OK}
