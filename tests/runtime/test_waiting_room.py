"""The waiting room: who waits is let go when there is room, at once, and leaves nothing behind."""

import asyncio
import random
import time
from collections import Counter

import pytest

from tests.scheduling.ask import A, ask
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import LoadReported, PoolsDeclared, RequestEnded
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.runtime.waiting_room import TICK_SECONDS, Wait, WaitingRoom
from tidegate.runtime.workers.tally import Tally
from tidegate.scheduling.admission import Admission
from tidegate.scheduling.dispatch import Decision, Dispatcher, Refusal
from tidegate.scheduling.line import Asker, QueueSettings, Turnaway, Why
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.queue import Bounds
from tidegate.scheduling.request import InferenceRequest

MOST = 2


class Place:
    """A pool of one engine with room for two, and its waiting room."""

    def __init__(self, most: int | None = MOST, seconds: float = 30.0, requests: int = 100) -> None:
        self.fleet = Fleet(1e9)
        self.dispatcher = Dispatcher(self.fleet, random.Random(0))
        self.tally = Tally()
        self.noted: list[str] = []
        self.abandoned: list[str] = []
        self.room = WaitingRoom(
            Admission(self.fleet, self.dispatcher), self.note, self.abandon, self.tally, time.monotonic
        )
        declared = PoolsDeclared((PoolSpec("default", "vllm", ("*",), (EndpointSpec(A, max_running=most),)),))
        self.fleet.apply(declared, time.monotonic())
        settings = QueueSettings(Bounds(requests=requests), seconds, seconds)
        rooms = self.room.configure({"default": settings})
        self.dispatcher.configure(declared, {"default": Policy("least_request")}, rooms)

    def note(self, decision: Decision, request: InferenceRequest) -> None:
        assert decision.reservation.id == request.id
        self.noted.append(request.id)

    def abandon(self, reservation_id: str) -> None:
        self.abandoned.append(reservation_id)
        self.end(reservation_id)

    def fill(self) -> None:
        for number in range(MOST):
            assert isinstance(self.room.ask(ask(f"f{number}"), Asker()), Decision)

    def wait(self, name: str, priority: int = 0) -> Wait:
        waits = self.room.ask(ask(name), Asker(priority=priority, bytes=10))
        assert isinstance(waits, Wait)
        return waits

    def end(self, name: str) -> None:
        self.fleet.apply(RequestEnded(name), time.monotonic())
        self.room.changed()

    def counted(self) -> dict[str, int]:
        """Return the outcomes that were counted, and what is still counted as waiting."""
        calls: Counter[str] = Counter()
        for name, arguments, times in self.tally.take():
            if name == "queued":
                calls["waiting"] += times
            elif name == "unqueued":
                calls["waiting"] -= times
                calls[str(arguments[2])] += times
            elif name == "turned_away":
                calls[str(arguments[2])] += times
        return {name: times for name, times in calls.items() if times}


async def test_who_waits_goes_in_the_turn_after_there_is_room() -> None:
    place = Place()
    place.fill()
    waits = place.wait("waits")
    task = asyncio.create_task(waits.over())
    await asyncio.sleep(0.01)
    assert not task.done()
    place.end("f0")
    outcome = await asyncio.wait_for(task, 0.1)
    assert isinstance(outcome, Decision)
    waits.leave()
    assert place.noted == ["f0", "f1", "waits"]
    assert place.abandoned == []
    assert place.counted() == {"admitted": 1}


async def test_many_that_end_in_one_turn_are_looked_at_once() -> None:
    place = Place()
    place.fill()
    waits = [place.wait(f"w{number}") for number in range(4)]
    place.end("f0")
    place.end("f1")
    outcomes = await asyncio.gather(*(one.over() for one in waits[:2]))
    assert all(isinstance(one, Decision) for one in outcomes)
    assert place.counted() == {"waiting": 2, "admitted": 2}


async def test_who_leaves_is_out_and_the_next_one_goes() -> None:
    place = Place()
    place.fill()
    first, second = place.wait("first", 1), place.wait("second")
    task = asyncio.create_task(first.over())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    first.leave()
    first.leave()
    assert len(place.room) == 1
    place.end("f0")
    assert isinstance(await second.over(), Decision)
    assert place.counted() == {"cancelled": 1, "admitted": 1}
    assert "first" not in place.noted


async def test_a_decision_whose_client_left_in_the_same_turn_is_given_back_and_goes_to_the_next() -> None:
    place = Place()
    place.fill()
    first, second = place.wait("first"), place.wait("second")
    task = asyncio.create_task(first.over())
    await asyncio.sleep(0)
    place.end("f0")
    await asyncio.sleep(0)  # it is decided now, and nobody has heard of it
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    first.leave()
    assert place.abandoned == ["first"]
    assert isinstance(await second.over(), Decision)
    assert len(place.fleet.ledger) == MOST


async def test_time_is_up_when_it_is_and_not_at_the_next_tick() -> None:
    place = Place(seconds=0.05)
    place.fill()
    waits = place.wait("waits")
    began = time.monotonic()
    outcome = await asyncio.wait_for(waits.over(), 1)
    assert isinstance(outcome, Turnaway)
    assert outcome.why is Why.EXPIRED
    assert time.monotonic() - began > 0.04
    waits.leave()
    assert place.counted() == {"wait_expired": 1}


async def test_who_is_shed_is_told_soon() -> None:
    place = Place(requests=1)
    place.fill()
    low = place.wait("low")
    place.wait("high", 1)
    outcome = await asyncio.wait_for(low.over(), 0.1)
    assert isinstance(outcome, Turnaway)
    assert outcome.why is Why.SHED
    refused = place.room.ask(ask("late"), Asker())
    assert isinstance(refused, Turnaway)
    assert place.counted() == {"shed": 1, "queue_full": 1, "waiting": 1}


async def test_room_that_a_report_tells_of_is_found_by_looking_again_and_again() -> None:
    place = Place(most=None)
    full = EngineReport(running=1.0, waiting=0.0, kv_usage=1.0, kv_capacity_tokens=1000.0)
    place.fleet.apply(LoadReported(A, full), time.monotonic())
    assert isinstance(place.room.ask(ask("first"), Asker()), Wait), "somebody else's request fills the cache"
    room = asyncio.create_task(place.room.run())
    waits = place.wait("second")
    free = EngineReport(running=0.0, waiting=0.0, kv_usage=0.0, kv_capacity_tokens=1000.0)
    place.fleet.apply(LoadReported(A, free), time.monotonic())
    assert isinstance(await asyncio.wait_for(waits.over(), 8 * TICK_SECONDS), Decision)
    room.cancel()


async def test_the_end_turns_all_away_at_once() -> None:
    place = Place()
    place.fill()
    waits = [place.wait(f"w{number}") for number in range(3)]
    place.room.close()
    outcomes = await asyncio.gather(*(one.over() for one in waits))
    assert [one.why for one in outcomes if isinstance(one, Turnaway)] == [Why.STOPPING] * 3
    assert place.counted() == {"stopping": 3}


async def test_what_nobody_serves_is_refused_and_not_kept() -> None:
    place = Place()
    outcome = place.room.ask(ask("q")._replace(pool="nowhere"), Asker(priority=-1))
    assert isinstance(outcome, Refusal)
    assert place.counted() == {}


async def test_every_request_that_asks_here_is_counted_as_come() -> None:
    place = Place()
    place.fill()
    place.wait("waits", -1)
    assert ("received", ("default",), MOST + 1) in place.tally.take()


async def test_what_waits_is_shown() -> None:
    place = Place()
    place.fill()
    place.wait("one")
    place.wait("two", -1)
    interactive, batch = place.room.standings()
    assert (interactive.requests, interactive.bytes, batch.requests) == (1, 10, 1)
    assert place.room.rate("default") is not None
    with pytest.raises(KeyError):
        place.room.rate("nowhere")
