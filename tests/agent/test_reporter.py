"""The stream of reports: what is sent, and what happens when it breaks."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ports import free_port
from tidegate.agent import reporter as module
from tidegate.agent.backoff import FIRST_SECONDS, MAX_SECONDS, Backoff
from tidegate.agent.reporter import METHOD, Reporter

HERE = "127.0.0.1"
Serve = Callable[[Any], Awaitable[None]]


@contextlib.asynccontextmanager
async def control_plane(port: int, serve: Serve) -> AsyncIterator[None]:
    async def report(_: object, context: Any) -> None:
        await serve(context)

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(report)
    _, service, method = METHOD.split("/")
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(f"{HERE}:{port}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


@contextlib.asynccontextmanager
async def reporting(reporter: Reporter) -> AsyncIterator[None]:
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(reporter.run())
        yield
        running.cancel()


class Intake:
    """Answers every report; ``arrived`` waits for one."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[bytes] = asyncio.Queue()
        self.answering = asyncio.Event()
        self.answering.set()

    async def serve(self, context: Any) -> None:
        while isinstance(report := await context.read(), bytes):
            await self.reports.put(report)
            await self.answering.wait()
            await context.write(b"")


def numbered(sequence: int) -> bytes:
    return b"%d" % sequence


async def test_nothing_is_reported_before_there_is_something_to_report() -> None:
    port, intake = free_port(), Intake()
    reporter = Reporter(f"{HERE}:{port}", numbered)
    async with control_plane(port, intake.serve), reporting(reporter):
        await asyncio.sleep(0.5)
        assert intake.reports.empty()
        reporter.changed()
        assert await intake.reports.get() == b"1"


async def test_what_changes_while_a_receipt_is_out_is_reported_once() -> None:
    port, intake = free_port(), Intake()
    reporter = Reporter(f"{HERE}:{port}", numbered)
    async with control_plane(port, intake.serve), reporting(reporter):
        reporter.changed()
        intake.answering.clear()
        assert await intake.reports.get() == b"1"
        for _ in range(100):
            reporter.changed()
        intake.answering.set()
        assert await intake.reports.get() == b"2"
        await asyncio.sleep(0.2)
        assert intake.reports.empty()


async def test_a_report_without_a_receipt_breaks_the_stream_and_the_next_one_begins_with_a_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.3)
    port, intake = free_port(), Intake()
    reporter = Reporter(f"{HERE}:{port}", numbered)
    async with control_plane(port, intake.serve), reporting(reporter):
        intake.answering.clear()
        reporter.changed()
        assert await intake.reports.get() == b"1"
        assert await intake.reports.get() == b"2"
        intake.answering.set()


@pytest.mark.parametrize("code", [grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE])
async def test_a_refusal_is_logged_with_its_reason_and_tried_again(
    code: grpc.StatusCode, caplog: pytest.LogCaptureFixture
) -> None:
    port, tries = free_port(), asyncio.Queue[bytes]()

    async def refuse(context: Any) -> None:
        await tries.put(await context.read())
        await context.abort(code, "not you")

    reporter = Reporter(f"{HERE}:{port}", numbered)
    async with control_plane(port, refuse), reporting(reporter):
        reporter.changed()
        assert [await tries.get(), await tries.get()] == [b"1", b"2"]
    reasons = [record.__dict__["fields"]["reason"] for record in caplog.records if record.name.startswith("tidegate")]
    assert reasons[0].endswith(f"{code.name} not you")


async def test_a_stream_that_ends_well_is_made_anew() -> None:
    port, tries = free_port(), asyncio.Queue[bytes]()

    async def once(context: Any) -> None:
        await tries.put(await context.read())
        await context.write(b"")

    reporter = Reporter(f"{HERE}:{port}", numbered)
    async with control_plane(port, once), reporting(reporter):
        seen: set[bytes] = set()
        while len(seen) < 3:
            reporter.changed()
            with contextlib.suppress(TimeoutError):
                seen.add(await asyncio.wait_for(tries.get(), 0.1))


async def test_waits_grow_while_nobody_answers_and_begin_anew_after_reports_arrived_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(module, "STEADY_SECONDS", 0.05)
    port = free_port()
    reporter = Reporter(f"{HERE}:{port}", numbered)

    def waits() -> list[float]:
        fields = [record.__dict__["fields"] for record in caplog.records if record.name.startswith("tidegate")]
        return [field["again_in_seconds"] for field in fields if "again_in_seconds" in field]

    async with reporting(reporter):
        reporter.changed()
        while len(waits()) < 3:  # noqa: ASYNC110 - polls a list
            await asyncio.sleep(0.02)
        assert waits()[2] >= 1.0
        intake = Intake()
        async with control_plane(port, intake.serve):
            await intake.reports.get()
            await asyncio.sleep(0.2)
        before = len(waits())
        reporter.changed()
        while len(waits()) == before:  # noqa: ASYNC110 - polls a list
            await asyncio.sleep(0.02)
        assert waits()[before] <= FIRST_SECONDS


@given(st.integers(0, 200), st.randoms(use_true_random=False))
def test_waits_grow_to_a_bound_and_are_never_the_same_for_all(failures: int, rng: random.Random) -> None:
    backoff = Backoff(rng)
    waits = [backoff.failed() for _ in range(failures + 1)]
    assert all(FIRST_SECONDS / 2 <= wait <= MAX_SECONDS for wait in waits)
    assert len(waits) < 12 or waits[-1] >= MAX_SECONDS / 2
    backoff.succeeded()
    assert backoff.failed() <= FIRST_SECONDS


def test_two_agents_that_fail_together_do_not_come_back_together() -> None:
    one, other = Backoff(random.Random(1)), Backoff(random.Random(2))
    assert [one.failed() for _ in range(8)] != [other.failed() for _ in range(8)]
