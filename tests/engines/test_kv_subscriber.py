"""Listening to an engine that publishes what it caches, over ZMQ on loopback."""

import asyncio
import random
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import zmq

from tests.fleet.declare import A, fleet_of, pool
from tests.ports import free_port
from tidegate.engines import kv_subscriber
from tidegate.engines.kv_events import MAX_MESSAGE_BYTES
from tidegate.engines.kv_source import KvSource
from tidegate.engines.kv_watch import KvWatch
from tidegate.fleet.events import BlocksCleared, BlocksStored, FleetEvent
from tidegate.simulator.kv_publisher import KvPublisher
from tidegate.simulator.prompts import block_keys
from tidegate.tokens.prefix import of_token_ids

IDS = list(range(1000, 1064))
CHAIN = of_token_ids(IDS, 16, ("",)).hashes


def stored(publisher: KvPublisher, ids: list[int], first: int = 0) -> None:
    """Publish the blocks of ``ids`` from number ``first`` on, in a batch."""
    for key in block_keys(array("I", ids).tobytes(), told=True)[first:]:
        publisher.stored(key)
    publisher.flush()


class Ear:
    """Listens to one engine, and keeps what it hears."""

    def __init__(self, events_port: int, replay_port: int | None = None, **more: Any) -> None:
        self.heard: list[FleetEvent] = []
        self.outcomes: Counter[str] = Counter()
        self.watch = KvWatch(self.heard.append, self._count, random.Random(1))
        replay = f"tcp://127.0.0.1:{replay_port}" if replay_port else ""
        self.source = KvSource(A, f"tcp://127.0.0.1:{events_port}", replay, **more)

    def _count(self, outcome: str) -> None:
        self.outcomes[outcome] += 1

    def cached(self) -> int:
        """Return how many blocks of the chain are cached, after all that was heard."""
        fleet = fleet_of(pool(A))
        for event in self.heard:
            fleet.apply(event, 0.0)
        return fleet.cached("default", CHAIN).blocks(A)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.01)


@asynccontextmanager
async def listening(ear: Ear) -> AsyncIterator[None]:
    ear.watch.watch([ear.source])
    task = asyncio.create_task(ear.watch.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def publishing(replay: bool = False, port: int = 0) -> AsyncIterator[KvPublisher]:
    publisher = KvPublisher("127.0.0.1", port, 0 if replay else None, "kv@engine")
    repeating = asyncio.create_task(publisher.repeat())
    try:
        yield publisher
    finally:
        repeating.cancel()
        await asyncio.gather(repeating, return_exceptions=True)
        publisher.close()


@asynccontextmanager
async def subscribed(publisher: KvPublisher, ear: Ear) -> AsyncIterator[None]:
    """Listen; on the way in, make sure that the subscription has reached the publisher."""
    async with listening(ear):
        await until(lambda: ear.outcomes["connected"] > 0)
        while not ear.outcomes["taken"]:
            publisher.cleared()
            publisher.flush()
            await asyncio.sleep(0.02)
        yield


async def test_what_is_stored_removed_and_cleared_is_heard() -> None:
    async with publishing() as publisher:
        ear = Ear(publisher.port, topic="kv@")
        async with subscribed(publisher, ear):
            stored(publisher, IDS)
            await until(lambda: ear.cached() == 4)
            assert BlocksStored(A, CHAIN, 16) in ear.heard
            publisher.removed(block_keys(array("I", IDS).tobytes(), told=True)[2])
            publisher.flush()
            await until(lambda: ear.cached() == 2)
            publisher.cleared()
            publisher.flush()
            await until(lambda: ear.cached() == 0)
            (standing,) = ear.watch.standings().values()
            assert standing.connected
            assert standing.missed == standing.unreadable == 0


async def test_another_topic_is_not_heard() -> None:
    async with publishing() as publisher:
        ear = Ear(publisher.port, topic="kv@another")
        async with listening(ear):
            await until(lambda: ear.outcomes["connected"] > 0)
            for _ in range(10):
                stored(publisher, IDS)
                await asyncio.sleep(0.02)
            assert ear.outcomes["taken"] == 0


async def test_who_comes_late_is_told_what_came_before_where_it_is_repeated() -> None:
    async with publishing(replay=True) as publisher:
        stored(publisher, IDS[:32])
        stored(publisher, IDS, 2)
        ear = Ear(publisher.port, publisher.replay_port)
        async with listening(ear):
            await until(lambda: ear.cached() == 4)
            assert ear.outcomes["replay"] == 1
            stored(publisher, IDS)
            await until(lambda: ear.outcomes["taken"] >= 3)
            assert ear.outcomes["missed"] == 0


async def test_a_gap_is_filled_where_it_is_repeated() -> None:
    async with publishing(replay=True) as publisher:
        ear = Ear(publisher.port, publisher.replay_port)
        async with subscribed(publisher, ear):
            taken = ear.outcomes["taken"]
            publisher._kept.append((publisher._next, _batch(IDS[:32])))
            publisher._next += 1
            stored(publisher, IDS, 2)
            await until(lambda: ear.cached() == 4)
            assert ear.outcomes["taken"] >= taken + 2
            assert ear.outcomes["missed"] == 0


async def test_a_gap_that_nobody_repeats_makes_all_doubtful() -> None:
    async with publishing() as publisher:
        ear = Ear(publisher.port)
        async with subscribed(publisher, ear):
            stored(publisher, IDS)
            await until(lambda: ear.cached() == 4)
            publisher._next += 1
            stored(publisher, [7] * 16)
            await until(lambda: ear.outcomes["missed"] == 1)
            await until(lambda: ear.cached() == 0)
            stored(publisher, IDS)
            await until(lambda: ear.cached() == 4)


async def test_an_engine_that_goes_has_nothing_and_is_heard_again_when_it_is_back() -> None:
    ear = Ear(port := free_port())
    async with listening(ear):
        async with publishing(port=port) as publisher:
            await until(lambda: ear.outcomes["connected"] == 1)
            while not ear.cached():
                stored(publisher, IDS)
                await asyncio.sleep(0.02)
        await until(lambda: ear.outcomes["disconnected"] == 1)
        assert ear.heard[-1] == BlocksCleared(A)
        assert [standing.connected for standing in ear.watch.standings().values()] == [False]
        async with publishing(port=port) as publisher:
            while not ear.cached():
                stored(publisher, IDS)
                await asyncio.sleep(0.02)
        assert ear.outcomes["connected"] == 2


async def test_what_cannot_be_read_is_counted_said_once_and_doubted(caplog: pytest.LogCaptureFixture) -> None:
    async with publishing() as publisher:
        ear = Ear(publisher.port)
        async with subscribed(publisher, ear):
            stored(publisher, IDS)
            await until(lambda: ear.cached() == 4)
            for payload in (b"", b"\xc1", b"\x93\x01\x02\x03"):
                publisher._socket.send_multipart([b"", bytes(8), payload])
            publisher._socket.send(b"alone")
            await until(lambda: ear.outcomes["unreadable"] == 4)
            assert ear.cached() == 0
            stored(publisher, IDS)
            await until(lambda: ear.cached() == 4)
    told = [record for record in caplog.records if getattr(record, "fields", {}).get("outcome") == "unreadable"]
    assert len(told) == 1


async def test_a_replay_without_an_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_subscriber, "REPLAY_SILENCE_SECONDS", 0.05)
    async with publishing() as publisher:
        ear = Ear(publisher.port, free_port())
        async with subscribed(publisher, ear):
            assert ear.outcomes["replay_failed"] >= 1
            stored(publisher, IDS)
            await until(lambda: ear.cached() == 4)


async def test_blocks_of_another_size_are_no_use() -> None:
    async with publishing() as publisher:
        ear = Ear(publisher.port, block_size=32)
        async with subscribed(publisher, ear):
            stored(publisher, IDS)
            await until(lambda: ear.outcomes["odd_size"] == 1)
            assert ear.cached() == 0


async def test_an_engine_that_is_no_longer_watched_is_left_alone() -> None:
    async with publishing() as publisher:
        ear = Ear(publisher.port)
        async with subscribed(publisher, ear):
            ear.watch.watch([])
            assert not ear.watch.standings()
            heard = len(ear.heard)
            stored(publisher, IDS)
            await asyncio.sleep(0.1)
            assert len(ear.heard) == heard


def test_the_queue_and_the_messages_are_bounded() -> None:
    async def options() -> None:
        context = zmq.asyncio.Context()
        ear = Ear(1)
        subscription = kv_subscriber.Subscription(ear.source, context, print, print, random.Random(1))
        socket = subscription._socket(zmq.SUB)
        assert socket.getsockopt(zmq.RCVHWM) == kv_subscriber.QUEUED_MESSAGES
        assert socket.getsockopt(zmq.MAXMSGSIZE) == MAX_MESSAGE_BYTES
        socket.close()
        context.term()

    asyncio.run(options())


def _batch(ids: list[int]) -> bytes:
    """Return the payload of a batch that stores the blocks of ``ids``."""
    publisher = KvPublisher("127.0.0.1", 0, None)
    try:
        stored(publisher, ids)
        return publisher._kept[0][1]
    finally:
        publisher.close()
