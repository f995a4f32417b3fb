"""Whatever happens in whatever order, and whichever worker dies: in the end all hold the same fleet."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.test_any_events import ADDRESSES, ENDINGS, EVENTS, NAMES, TOKENS
from tests.runtime.workers.plane import FakeSeat, Plane
from tidegate.fleet.breaker import BreakerRules, Circuit
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import (
    FleetEvent,
    LoadReported,
    PoolsDeclared,
    RequestEnded,
    RequestReserved,
    ScrapeStarted,
)
from tidegate.fleet.evidence import Ending
from tidegate.fleet.gpu import Pace
from tidegate.fleet.ledger import Reservation
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import EndpointView
from tidegate.runtime.workers import messages
from tidegate.runtime.workers.worker import Worker

WHO = st.integers(0, 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("happens"), EVENTS.filter(lambda event: not isinstance(event, RequestReserved))),
        st.tuples(st.just("decides"), WHO, NAMES, ADDRESSES, TOKENS),
        st.tuples(st.just("delivers"), WHO),
        st.tuples(st.just("abandons"), WHO),
        st.tuples(st.just("ends"), st.integers(0, 20), st.none() | TOKENS, ENDINGS),
        st.tuples(st.just("to main"), WHO, st.integers(1, 5)),
        st.tuples(st.just("to worker"), WHO, st.integers(1, 5)),
        st.tuples(st.just("dies"), WHO),
        st.tuples(st.just("waits"), st.floats(0, 30)),
    ),
    max_size=60,
)


class Replica(Worker):
    """A worker without a process; what it says stays in ``said``."""

    def __init__(self, seat: FakeSeat) -> None:
        super().__init__()
        self.seat = seat
        self.said: list[messages.FromWorker] = []
        self.open: list[str] = []

    def _send(self, message: messages.FromWorker) -> None:
        self.said.append(message)

    @property
    def fleet(self) -> Fleet:
        return self._fleet

    def take(self, count: int) -> None:
        """Receive the next messages."""
        taken, self.seat.sent[:count] = self.seat.sent[:count], []
        for message in taken:
            self._receive(message)


class World:
    """A main process and two workers."""

    def __init__(self) -> None:
        self.plane = Plane()
        self.workers = [Replica(seat) for seat in self.plane.seats]
        self.made: list[str] = []

    def step(self, what: str, *arguments: Any) -> None:
        getattr(self, f"_{what.replace(' ', '_')}")(*arguments)

    def _happens(self, event: FleetEvent) -> None:
        self.plane.apply(event)

    def _decides(self, who: int, pool: str, address: str, tokens: int) -> None:
        worker = self.workers[who]
        if not worker._welcome.done():
            return
        reservation = Reservation(f"{who}-{len(self.made)}", pool, address, tokens, 10, self.plane.now)
        self.made.append(reservation.id)
        worker.open.append(reservation.id)
        worker.fleet.apply(RequestReserved(reservation), self.plane.now)
        worker.reserved(RequestReserved(reservation))

    def _delivers(self, who: int) -> None:
        if self.workers[who].open:
            self.workers[who].delivered(self.workers[who].open.pop(0))

    def _abandons(self, who: int) -> None:
        if self.workers[who].open:
            self.workers[who].abandoned(self.workers[who].open.pop(0))

    def _ends(self, which: int, tokens: int | None, ending: Ending | None = None) -> None:
        if self.made:
            self.plane.apply(RequestEnded(self.made[which % len(self.made)], tokens, ending=ending))

    def _to_main(self, who: int, count: int) -> None:
        worker = self.workers[who]
        taken, worker.said[:count] = worker.said[:count], []
        for message in taken:
            self.plane.team.received(worker.seat, message)

    def _to_worker(self, who: int, count: int) -> None:
        self.workers[who].take(count)

    def _dies(self, who: int) -> None:
        seat = self.workers[who].seat
        self.plane.die(seat)
        self.plane.start(seat)
        self.workers[who] = Replica(seat)

    def _waits(self, seconds: float) -> None:
        self.plane.now += seconds
        self.plane.expire()

    def quiet(self) -> None:
        """Let everything arrive."""
        while any(worker.said or worker.seat.sent for worker in self.workers):
            for who in range(2):
                self._to_main(who, 1000)
                self._to_worker(who, 1000)


def held(fleet: Fleet) -> set[Reservation]:
    return set(fleet.ledger)


def without_what_depends_on_order(view: EndpointView) -> EndpointView:
    """Leave out means and reckonings: of recent requests, whose order and moments are not the same everywhere."""
    return view._replace(tokens=0.0, pace=Pace(*[1.0] * len(Pace._fields)), context=0.0, backlog=0.0, busy=0.0)


async def _live(steps: list[tuple[Any, ...]]) -> None:
    world = World()
    world.quiet()
    for what, *arguments in steps:
        world.step(what, *arguments)
    world.quiet()
    main, now = world.plane.fleet, world.plane.now
    for worker in world.workers:
        assert held(worker.fleet) == held(main)
        assert {address: main.ledger.inflight(address) for address in main.ledger.addresses()} == {
            address: worker.fleet.ledger.inflight(address) for address in worker.fleet.ledger.addresses()
        }
        assert list(worker.fleet.pools.items()) == list(main.pools.items())
    # What a report says beside what is ours depends on when it comes; after one more, that is the same too.
    for pool in main.pools.values():
        for endpoint in pool.endpoints:
            world.plane.apply(ScrapeStarted(endpoint.address))
            world.plane.apply(LoadReported(endpoint.address, EngineReport(7.0, 2.0)))
    world.quiet()
    for worker in world.workers:
        for ours, theirs in zip(main.views(now), worker.fleet.views(now), strict=True):
            assert [without_what_depends_on_order(view) for view in ours.endpoints] == [
                without_what_depends_on_order(view) for view in theirs.endpoints
            ]
    # Nothing is owed for ever: what was delivered runs out with its lease, everywhere.
    world.step("waits", 46.0)
    world.quiet()
    assert [len(fleet.ledger) for fleet in (main, *(worker.fleet for worker in world.workers))] == [0, 0, 0]


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_all_hold_the_same_fleet_in_the_end(steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(_live(steps))


async def test_an_end_that_overtakes_the_news_of_its_reservation_is_not_forgotten() -> None:
    world = World()
    world.quiet()
    world.step("decides", 0, "one", "10.0.0.1:8000", 100)
    world.step("ends", 0, 50)
    world.quiet()
    assert [held(world.plane.fleet), held(world.workers[0].fleet), held(world.workers[1].fleet)] == [set()] * 3
    world.plane.die(world.plane.seats[0])
    assert held(world.plane.fleet) == set()


async def test_what_a_dead_worker_had_not_delivered_is_released_everywhere() -> None:
    world = World()
    world.quiet()
    for _ in range(3):
        world.step("decides", 0, "one", "10.0.0.1:8000", 100)
    world.step("delivers", 0)
    world.quiet()
    assert len(held(world.workers[1].fleet)) == 3
    world.step("dies", 0)
    world.quiet()
    (left,) = held(world.plane.fleet)
    assert left.id == "0-0", "the delivered one"
    assert held(world.workers[0].fleet) == held(world.workers[1].fleet) == {left}


async def test_breakers_agree_wherever_requests_were_decided() -> None:
    world = World()
    address, pool = "10.0.0.1:8000", "one"
    members = (EndpointSpec(address), EndpointSpec("10.0.0.2:8000"))
    world.step("happens", PoolsDeclared((PoolSpec(pool, "vllm", ("*",), members, breaker=BreakerRules()),)))
    world.quiet()

    def circuits() -> list[Circuit]:
        world.quiet()
        fleets = [world.plane.fleet, *(worker.fleet for worker in world.workers)]
        return [fleet.view(pool, world.plane.now).endpoints[0].circuit for fleet in fleets]

    world.step("decides", 0, pool, address, 100)
    world.step("ends", 0, None, Ending.ENGINE_DEAD)
    assert circuits() == [Circuit.OPEN] * 3
    world.step("waits", 20.0)
    assert circuits() == [Circuit.HALF_OPEN] * 3
    # Both try it before either has heard of the other.
    world.step("decides", 0, pool, address, 100)
    world.step("decides", 1, pool, address, 100)
    assert circuits() == [Circuit.TRYING] * 3
    world.step("ends", 1, None, Ending.SERVED)
    assert circuits() == [Circuit.TRYING] * 3
    world.step("ends", 2, None, Ending.SERVED)
    assert circuits() == [Circuit.CLOSED] * 3
