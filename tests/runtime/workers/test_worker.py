"""A worker in this process, spoken to as the main process does."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.configurations import parsed
from tests.ports import free_port
from tidegate.config import Config
from tidegate.discovery import static
from tidegate.fleet.events import RequestEnded, RequestReserved
from tidegate.fleet.state import Fleet
from tidegate.runtime.decider import Decider
from tidegate.runtime.workers import messages, worker
from tidegate.runtime.workers.channel import Channel
from tidegate.runtime.workers.worker import Worker
from tidegate.scheduling.dispatch import Decision, Refusal
from tidegate.scheduling.request import InferenceRequest
from tidegate.tokens.correction import Corrections
from tidegate.tokens.count import CountSource, TokenCount

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def config(transport: str, *pools: str) -> Config:
    return parsed(
        {
            "control": {"ext_proc_transport": transport},
            "pools": [
                {"name": name, "models": [name], "endpoints": [{"address": f"10.0.0.{number}:1"}]}
                for number, name in enumerate(pools, 1)
            ],
        }
    )


class Main:
    """The main process: what it was told, and the worker it speaks to."""

    def __init__(self, transport: str) -> None:
        self.port = free_port()
        self.transport = transport
        self.told: list[messages.FromWorker] = []
        self.gone = asyncio.Event()
        self.orphaned = asyncio.Event()
        self.worker = Worker(self.orphaned.set)
        self.warm = asyncio.Event()
        self.decider: Decider

    async def begin(self) -> None:
        ours, theirs = socket.socketpair()
        self.channel = await Channel.over(ours, messages.from_worker, self.told.append, self.gone.set)
        self.run = asyncio.ensure_future(self.worker.run(theirs))
        first = config(self.transport, "one")
        fleet = Fleet(45.0)
        fleet.apply(static.declared(first), 0.0)
        text = first.model_dump_json().encode()
        image = Corrections().image()
        self.channel.send(messages.Welcome(self.port, text, 1_700_000_000, fleet.image(), image))

    async def hears(self, kind: type[Any]) -> Any:
        async with asyncio.timeout(10):
            while not (found := [message for message in self.told if isinstance(message, kind)]):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return found[-1]

    async def health(self) -> int:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=5, wait_for_ready=True)
            return int(answer.status)


@pytest.fixture(params=["grpc", "h2"])
async def main(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Main]:
    tested = Main(request.param)

    async def warm(decider: Decider, _: Config) -> None:
        tested.decider = decider
        await tested.warm.wait()

    monkeypatch.setattr(Decider, "warm", warm)
    await tested.begin()
    yield tested
    tested.warm.set()
    tested.channel.send(messages.Stop())
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait_for(tested.run, 10)
    tested.channel.abort()
    await tested.gone.wait()


def request(number: str, model: str = "one") -> InferenceRequest:
    return InferenceRequest(number, "chat_completions", model, TokenCount(10, CountSource.EXACT))


async def test_it_says_that_it_serves_only_once_it_has_everything(main: Main) -> None:
    assert await main.health() == NOT_SERVING
    assert not any(isinstance(message, messages.Ready) for message in main.told)
    main.warm.set()
    await main.hears(messages.Ready)
    assert await main.health() == SERVING


async def test_one_that_leaves_says_so_and_goes_on_for_a_while(main: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "DRAIN_SECONDS", 0.5)
    main.warm.set()
    await main.hears(messages.Ready)
    main.worker.leave()
    await main.hears(messages.Leaving)
    assert await main.health() == NOT_SERVING
    assert not main.run.done()
    await asyncio.wait_for(main.run, 10)
    await asyncio.wait_for(main.gone.wait(), 5)
    assert not main.orphaned.is_set()


async def test_one_that_leaves_and_is_told_to_stop_ends_at_once(main: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "DRAIN_SECONDS", 3600)
    main.warm.set()
    await main.hears(messages.Ready)
    main.worker.leave()
    await main.hears(messages.Leaving)
    main.channel.send(messages.Stop())
    await asyncio.wait_for(main.run, 10)


async def test_it_notices_that_the_main_process_is_gone(main: Main) -> None:
    main.warm.set()
    await main.hears(messages.Ready)
    main.channel.abort()
    await asyncio.wait_for(main.orphaned.wait(), 5)
    main.worker._stop.set()


async def test_it_decides_by_each_configuration_from_the_moment_it_is_told(main: Main) -> None:
    main.warm.set()
    await main.hears(messages.Ready)
    second = config(main.transport, "one", "two")
    main.channel.send(messages.Declared(1.0, static.declared(second)))
    main.channel.send(messages.Prepare(1, second.model_dump_json().encode()))
    assert await main.hears(messages.Prepared) == messages.Prepared(1)
    desk = main.decider.desk
    assert isinstance(desk.decide(request("r1", "two")), Refusal), "it was not told to decide by it"
    main.channel.send(messages.Decide(1))
    assert await main.hears(messages.Deciding) == messages.Deciding(1)

    decision = desk.decide(request("r2", "two"))
    assert isinstance(decision, Decision)
    assert await main.hears(messages.Reserved) == messages.Reserved(RequestReserved(decision.reservation))
    desk.delivered("r2")
    assert await main.hears(messages.Delivered) == messages.Delivered("r2")
    main.channel.send(messages.Ended(2.0, RequestEnded("r2")))
    desk.decide(request("r3", "two"))
    desk.abandon("r3")
    assert await main.hears(messages.Abandoned) == messages.Abandoned("r3")
    assert len(main.worker._fleet.ledger) == 0
    counted = await main.hears(messages.Counted)
    assert ("received", ("two",), 2) in counted.calls
    assert desk.new_id("") != desk.new_id("")
