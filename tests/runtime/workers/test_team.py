"""The main process's side: configurations in two steps, new workers, and those that do not follow."""

import asyncio
import logging

import pytest

from tests.configurations import parsed
from tests.runtime.workers.plane import Plane
from tidegate.config import Config
from tidegate.config_values import CHECKED
from tidegate.discovery import static
from tidegate.runtime.lessons import Lesson
from tidegate.runtime.workers import messages, team
from tidegate.runtime.workers.seat import State
from tidegate.runtime.workers.team import WorkerError


def config(*pools: str) -> Config:
    return parsed(
        {
            "control": {"workers": 2},
            "pools": [
                {"name": name, "models": [name], "endpoints": [{"address": f"10.0.0.{number}:1"}]}
                for number, name in enumerate(pools, 1)
            ],
        }
    )


FIRST, SECOND = config("one"), config("one", "two")


def kinds(sent: list[messages.ToWorker]) -> list[str]:
    return [type(message).__name__ for message in sent]


def given_in(message: messages.ToWorker) -> Config:
    assert isinstance(message, messages.Welcome | messages.Prepare)
    return Config.model_validate_json(message.config, context=CHECKED)


@pytest.fixture
def plane() -> Plane:
    plane = Plane(0)
    plane.team._config = b""
    plane.apply(static.declared(FIRST))
    plane.team.configure(FIRST)
    for number in range(2):
        plane.seats.append(plane._seat(number))
    return plane


def test_a_new_worker_is_given_the_fleet_and_then_what_happens(plane: Plane) -> None:
    seat = plane.seats[0]
    welcome = seat.sent[0]
    assert isinstance(welcome, messages.Welcome)
    assert (welcome.port, given_in(welcome)) == (7000, FIRST)
    assert welcome.fleet == plane.fleet.image()
    plane.apply(static.declared(SECOND))
    plane.team.teach(Lesson("one", "m", 1000, 1100))
    assert kinds(seat.sent) == ["Welcome", "Declared", "Taught"]


def test_workers_that_are_there_before_the_configuration_are_welcomed_with_it() -> None:
    plane = Plane(2)
    plane.team._config = b""
    for seat in plane.seats:
        seat.sent.clear()
    plane.apply(static.declared(FIRST))
    assert [seat.sent for seat in plane.seats] == [[], []]
    plane.team.configure(FIRST)
    for seat in plane.seats:
        (welcome,) = seat.sent
        assert given_in(welcome) == FIRST
        assert isinstance(welcome, messages.Welcome)
        assert welcome.fleet == plane.fleet.image()


async def test_a_reload_waits_until_all_are_prepared_and_then_until_all_decide_by_it(plane: Plane) -> None:
    one, two = plane.seats
    preparing = asyncio.ensure_future(plane.team.prepare(SECOND))
    await asyncio.sleep(0.05)
    assert given_in(one.sent[-1]) == SECOND
    plane.team.received(one, messages.Prepared(1))
    await asyncio.sleep(0.05)
    assert not preparing.done()
    plane.team.received(two, messages.Prepared(1))
    await asyncio.wait_for(preparing, 5)

    plane.team.configure(SECOND)
    assert one.sent[-1] == two.sent[-1] == messages.Decide(1)
    settling = asyncio.ensure_future(plane.team.settled())
    plane.team.received(two, messages.Deciding(1))
    await asyncio.sleep(0.05)
    assert not settling.done()
    plane.team.received(one, messages.Deciding(1))
    await asyncio.wait_for(settling, 5)
    assert not one.killed
    assert not two.killed


async def test_a_worker_that_comes_in_the_middle_of_a_reload_goes_through_it(plane: Plane) -> None:
    one, two = plane.seats
    preparing = asyncio.ensure_future(plane.team.prepare(SECOND))
    await asyncio.sleep(0.05)
    plane.die(two)
    plane.team.received(one, messages.Prepared(1))
    await asyncio.wait_for(preparing, 5)
    plane.start(two)
    assert kinds(two.sent) == ["Welcome", "Prepare"]
    assert [given_in(message) for message in two.sent] == [FIRST, SECOND]
    plane.team.configure(SECOND)
    plane.team.received(one, messages.Deciding(1))
    assert two.sent[-1] == messages.Decide(1)
    plane.die(two)
    plane.start(two)
    assert kinds(two.sent) == ["Welcome"]
    assert given_in(two.sent[0]) == SECOND
    await asyncio.wait_for(plane.team.settled(), 5)
    assert not two.killed


async def test_a_worker_that_does_not_follow_is_killed(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(team, "PREPARE_SECONDS", 0.05)
    monkeypatch.setattr(team, "SETTLE_SECONDS", 0.05)
    one, two = plane.seats
    two.state = State.STARTING
    preparing = asyncio.ensure_future(plane.team.prepare(SECOND))
    await asyncio.wait_for(preparing, 5)
    assert (one.killed, two.killed) == (True, False), "one that is starting goes through it before it answers"
    assert "does not follow" in caplog.text

    one.killed = False
    plane.team.received(one, messages.Prepared(1))
    plane.team.configure(SECOND)
    await asyncio.wait_for(plane.team.settled(), 5)
    assert one.killed


async def test_a_worker_that_says_nothing_is_killed(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(team, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(plane.team._children, "keep", lambda _: asyncio.sleep(3600))
    one, two = plane.seats
    two.state = State.STARTING
    one.heard_at = two.heard_at = asyncio.get_running_loop().time()
    running = asyncio.ensure_future(plane.team.run())
    async with asyncio.timeout(10):
        while not one.killed:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    running.cancel()
    assert not two.killed, "it may still be loading"
    assert "hangs" in caplog.text


async def test_a_worker_that_misses_something_ends_the_start(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    plane.seats[0].state = State.DOWN
    assert plane.team.unready() == ()
    plane.seats[1].state = State.STARTING
    assert plane.team.unready() == ("no worker is ready",)
    monkeypatch.setattr(type(plane.seats[0]), "status", property(lambda seat: 1 if seat is plane.seats[0] else None))
    with pytest.raises(WorkerError, match="worker 0 cannot start"):
        await asyncio.wait_for(plane.team.ready(FIRST), 5)


def test_the_state_of_each_worker_is_known(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one, two = plane.seats
    plane.team.received(one, messages.Ready())
    plane.team.received(two, messages.Leaving())
    assert plane.team.status() == [
        {"port": 7000, "state": "ready", "pid": None, "restarts": 0},
        {"port": 7001, "state": "leaving", "pid": None, "restarts": 0},
    ]
    assert two.announced, "its end is expected"
    plane.die(two)
    assert plane.team.status()[1]["state"] == "down"


def test_figures_reach_the_page(plane: Plane) -> None:
    plane.metrics.configure(static.declared(FIRST).pools)
    plane.team.received(plane.seats[0], messages.Counted((("received", ("one",), 2),)))
    plane.team.received(plane.seats[1], messages.Counted((("received", ("one",), 3),)))
    assert b'tidegate_incoming_requests_total{pool="one"} 5.0' in plane.metrics.render()
