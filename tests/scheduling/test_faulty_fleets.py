"""Faults of single endpoints, from the requests' side, in virtual time: who is asked, and what is lost."""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable

from tests.scheduling.ask import A, B, C, D, ask
from tidegate.fleet.breaker import BreakerRules
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import (
    EvidenceReported,
    HealthChanged,
    PoolsDeclared,
    RequestEnded,
    TimePassed,
)
from tidegate.fleet.evidence import Ending, Evidence, Verdict
from tidegate.fleet.health import HealthStatus
from tidegate.fleet.state import Fleet
from tidegate.scheduling.dispatch import Decision, Dispatcher
from tidegate.scheduling.policy import Policy

Judge = Callable[[str, float], Ending]
"""Returns how a request that is sent to an address at a moment (seconds) will end."""

PER_SECOND, SECONDS_EACH, FAILS_AFTER = 20, 0.5, 0.05


class World:
    """A pool under twenty requests a second, each of which takes half a second, or fails sooner."""

    def __init__(self, *addresses: str, ends: Judge) -> None:
        self.fleet, self.now, self.number, self.ends = Fleet(45.0), 0.0, 0, ends
        self.decides = Dispatcher(self.fleet, random.Random(23))
        self.running: list[tuple[float, str, str, Ending]] = []
        self.changes: list[HealthChanged] = []
        self.declare(*addresses)

    def declare(self, *addresses: str) -> None:
        members = tuple(map(EndpointSpec, addresses))
        declared = PoolsDeclared((PoolSpec("default", "vllm", ("*",), members, breaker=BreakerRules()),))
        self.take(declared)
        self.decides.configure(declared, {"default": Policy("least_request")})

    def take(self, event: PoolsDeclared | EvidenceReported | RequestEnded | TimePassed) -> None:
        self.changes += [one for one in self.fleet.apply(event, self.now) if isinstance(one, HealthChanged)]

    def run(self, seconds: float, said: Iterable[EvidenceReported] = ()) -> Counter[tuple[str, Ending]]:
        """Let time pass, with evidence that is said again every second; return who got how many, and their ends."""
        found: Counter[tuple[str, Ending]] = Counter()
        for _ in range(round(seconds * PER_SECOND)):
            self.now = round(self.now + 1 / PER_SECOND, 6)
            if self.now % 1.0 == 0.0:
                for event in said:
                    self.take(event)
                self.take(TimePassed())
            while self.running and self.running[0][0] <= self.now:
                _, name, _, ending = heapq.heappop(self.running)
                self.take(RequestEnded(name, failed=ending is not Ending.SERVED, ending=ending))
            self.number += 1
            decision = self.decides.decide(ask(f"r{self.number}"), self.now)
            assert isinstance(decision, Decision), "nobody is ever refused"
            address = decision.addresses[0]
            ending = self.ends(address, self.now)
            took = SECONDS_EACH if ending is Ending.SERVED else FAILS_AFTER
            heapq.heappush(self.running, (self.now + took, decision.reservation.id, address, ending))
            found[address, ending] += 1
        return found


def test_a_node_that_comes_and_goes_every_two_seconds_costs_few_requests_and_few_changes() -> None:
    """F23."""

    def flaps(address: str, now: float) -> Ending:
        return Ending.RESET if address == B and now % 4.0 >= 2.0 else Ending.SERVED

    world = World(A, B, C, D, ends=flaps)
    found = world.run(300.0)
    assert found[B, Ending.RESET] < 60, "of 6,000 requests; without a memory it would be 750"
    ejections = [one for one in world.changes if one.health.status is HealthStatus.EJECTED]
    assert {one.address for one in ejections} == {B}
    assert 2 <= len(ejections) <= 10


def test_a_node_that_fails_all_is_left_within_its_five_failures_and_no_other_is_touched() -> None:
    world = World(A, B, C, D, ends=lambda address, _: Ending.SERVER_ERROR if address == B else Ending.SERVED)
    found = world.run(5.0)
    # One sent before the fifth came back is not known to fail.
    assert found[B, Ending.SERVER_ERROR] <= 6
    later = world.run(295.0)
    assert later[B, Ending.SERVER_ERROR] <= 8, "one for each time that it is tried"
    assert {one.address for one in world.changes if one.health.status is HealthStatus.EJECTED} == {B}


def test_where_all_look_bad_by_what_is_said_and_requests_are_served_nobody_is_refused() -> None:
    """F24."""
    failed = Evidence("http", Verdict.FAILED, ("http_status",), "status 503", 3.0)
    world = World(A, B, C, D, ends=lambda *_: Ending.SERVED)
    found = world.run(60.0, [EvidenceReported(address, failed) for address in (A, B, C, D)])
    assert all(found[address, Ending.SERVED] > 200 for address in (A, B, C, D))
    assert not [one for one in world.changes if one.health.status is HealthStatus.EJECTED]


def test_where_all_fail_all_are_asked_and_the_first_that_is_back_serves_within_seconds() -> None:
    """F25, as far as decisions go: who waits, and for how long, is the queue's."""
    world = World(A, B, ends=lambda address, now: Ending.SERVED if address == B and now > 60 else Ending.UNCONNECTED)
    dead = world.run(60.0)
    assert min(dead[address, Ending.UNCONNECTED] for address in (A, B)) > 100
    world.run(5.0)
    back = world.run(10.0)
    assert back[B, Ending.SERVED] > 0.9 * back.total()


def test_a_node_that_joins_cold_is_no_herds_goal_and_gets_nothing_before_its_model_is_there() -> None:
    """F27."""
    loading = Evidence("model_loaded", Verdict.FAILED, ("model_missing",), "", 3.0)
    world = World(A, B, C, ends=lambda *_: Ending.SERVED)
    world.run(20.0)
    world.declare(A, B, C, D)
    world.run(2.0, [EvidenceReported(D, loading)])
    without = world.run(28.0, [EvidenceReported(D, loading)])
    assert without.total() == 560
    assert without[D, Ending.SERVED] == 0
    loaded = EvidenceReported(D, Evidence("model_loaded", Verdict.SOUND, valid_seconds=3.0))
    share = [world.run(10.0, [loaded])[D, Ending.SERVED] / 200 for _ in range(6)]
    assert share[0] < 0.15
    assert all(one < 0.3 for one in share)
    assert share[-1] > 0.2
