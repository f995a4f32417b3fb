"""Arrivals, cancellations, expiry, completions and outages in any order: nothing leaks, nobody is overrun."""

import math
import random
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.scheduling.ask import A, B, ask
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import LoadReported, PoolsDeclared, RequestEnded, ScrapeFailed
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.scheduling.admission import Admission
from tidegate.scheduling.dispatch import Decision, Dispatcher, Refusal
from tidegate.scheduling.line import Asker, Over, Place, QueueSettings, Turnaway, Why
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.queue import Bounds
from tidegate.scheduling.room import ALL, Claim

MOST = 3
BOUNDS = Bounds(requests=8, tokens=1500, bytes=800, tenant_requests=5)


class AnyOrder(RuleBasedStateMachine):
    """One pool of two endpoints, against plain sets of what waits and what runs."""

    kept_share = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.names = 0
        self.fleet = Fleet(1e9)
        self.dispatcher = Dispatcher(self.fleet, random.Random(0))
        self.admission = Admission(self.fleet, self.dispatcher)
        self.waiting: dict[str, Place] = {}
        self.running: set[str] = set()
        self.down: set[str] = set()
        self.asked = 0
        self.endings: Counter[str] = Counter()
        self.declare()

    def declare(self) -> None:
        members = tuple(EndpointSpec(address, max_running=MOST) for address in (A, B))
        declared = PoolsDeclared((PoolSpec("default", "vllm", ("*",), members),))
        self.fleet.apply(declared, self.now)
        queue = QueueSettings(BOUNDS, 4.0, 8.0, 3.0, 0.7, weights=(("a", 2.0),), kept_share=self.kept_share)
        rooms = self.admission.configure({"default": queue}, self.now)
        self.dispatcher.configure(declared, {"default": Policy("least_request")}, rooms)
        self.poll()

    def poll(self) -> None:
        for over in self.admission.poll(self.now):
            self.take(over)

    def take(self, over: Over) -> None:
        place = self.waiting.pop(over.place.request.id)
        assert place is over.place
        if isinstance(over.outcome, Decision):
            assert place.waiting.deadline > self.now, "the late are not sent"
            if place.waiting.priority < 0:
                assert all(one.waiting.priority < 0 for one in self.waiting.values()), "batch work goes last"
        self.note(place.request.id, over.outcome)

    def note(self, name: str, outcome: Decision | Refusal | Turnaway) -> None:
        assert not isinstance(outcome, Refusal)
        if isinstance(outcome, Decision):
            self.running.add(name)
            self.endings["decided"] += 1
        else:
            assert outcome.retry_seconds >= 1
            assert outcome.estimate is None or 0 <= outcome.estimate < math.inf
            self.endings[outcome.why.value] += 1

    @rule(
        tenant=st.sampled_from("abc"),
        priority=st.integers(-2, 2),
        tokens=st.integers(1, 300),
        size=st.integers(0, 200),
        patience=st.floats(0.0, 20.0),
    )
    def arrive(self, tenant: str, priority: int, tokens: int, size: int, patience: float) -> None:
        self.names += 1
        self.asked += 1
        name = f"r{self.names}"
        outcome = self.admission.ask(
            ask(name, prompt=tokens, limit=1), self.now, Asker(tenant, priority, size, self.now + patience)
        )
        if isinstance(outcome, Place):
            self.waiting[name] = outcome
        else:
            self.note(name, outcome)
        self.poll()

    @precondition(lambda self: self.waiting)
    @rule(at=st.integers(0))
    def cancel(self, at: int) -> None:
        name = sorted(self.waiting)[at % len(self.waiting)]
        assert self.admission.leave(name, self.now) is self.waiting.pop(name)
        assert self.admission.leave(name, self.now) is None
        self.endings["cancelled"] += 1
        self.poll()

    @precondition(lambda self: self.running)
    @rule(at=st.integers(0))
    def end(self, at: int) -> None:
        name = sorted(self.running)[at % len(self.running)]
        self.running.remove(name)
        self.fleet.apply(RequestEnded(name), self.now)
        self.poll()

    @rule(seconds=st.floats(0.0, 3.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.poll()

    @rule(address=st.sampled_from((A, B)))
    def fall(self, address: str) -> None:
        for _ in range(3):
            self.fleet.apply(ScrapeFailed(address, unreachable=True, reason="refused"), self.now)
        self.down.add(address)
        self.admission.reconsider()
        self.poll()

    @rule(address=st.sampled_from((A, B)))
    def return_(self, address: str) -> None:
        self.fleet.apply(LoadReported(address, EngineReport()), self.now)
        self.down.discard(address)
        self.admission.reconsider()
        self.poll()

    @rule()
    def reload(self) -> None:
        self.declare()

    @invariant()
    def nobody_is_overrun_and_every_request_is_somewhere(self) -> None:
        inflight = {address: self.fleet.ledger.inflight(address).requests for address in (A, B)}
        assert max(inflight.values()) <= MOST
        assert sum(inflight.values()) == len(self.running) == len(self.fleet.ledger)
        assert len(self.admission) == len(self.waiting)
        assert self.asked == len(self.waiting) + sum(self.endings.values())
        if any(one.waiting.priority >= 0 for one in self.waiting.values()):
            views = self.fleet.view("default", self.now).endpoints
            there = [one for one in views if not one.ejected and one.address not in self.down]
            claim = self.claim()
            free = {one.address: MOST - inflight[one.address] for one in there}
            able = [one for one in there if one.backlog * one.pace.prefill_seconds <= claim.prefill_seconds]
            room = any(free[one.address] for one in able)
            assert not room or sum(free.values()) <= claim.kept, "nobody waits where there is room"

    def claim(self) -> Claim:
        """Return what the first of those who wait may take, if it is no batch work."""
        return ALL

    @invariant()
    def the_bounds_hold(self) -> None:
        standings = self.admission.standings(self.now)
        assert sum(one.requests for one in standings) == len(self.waiting) <= BOUNDS.requests
        assert sum(one.tokens for one in standings) <= BOUNDS.tokens
        assert sum(one.bytes for one in standings) <= BOUNDS.bytes
        for tenant in "abc":
            assert sum(one.waiting.tenant == tenant for one in self.waiting.values()) <= BOUNDS.tenant_requests
        first = min((one.waiting.deadline for one in self.waiting.values()), default=math.inf)
        assert self.admission.next_deadline() == first > self.now - 1e-9

    def teardown(self) -> None:
        self.admission.turn_all_away(self.now)
        self.poll()
        for name in self.running:
            self.fleet.apply(RequestEnded(name), self.now)
        assert not self.waiting
        assert len(self.fleet.ledger) == len(self.admission) == 0
        assert all(one[2:6] == (0, 0, 0, 0.0) for one in self.admission.standings(self.now))
        assert set(self.endings) <= {"decided", "cancelled", *(why.value for why in Why)}


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase


class WithPlacesKept(AnyOrder):
    """The same, where the important came all the time, so that two of six places are kept for them."""

    kept_share = 2 / (2 * MOST)

    def __init__(self) -> None:
        super().__init__()
        drain = self.admission._lines["default"].drain
        drain.waits(self.now)
        for _ in range(20):
            self.now += 0.1
            drain.taken(100, self.now, empty=False, band=2)
            drain.taken(100, self.now, empty=False, band=0)
        drain.emptied(self.now)
        self.admission.reconsider()
        self.poll()
        assert self.admission._lines["default"].claim(0, self.now).kept == 2

    def claim(self) -> Claim:
        line = self.admission._lines["default"]
        first = line.queue.next(self.now)
        assert first is not None
        claim = line.claim(first.priority, self.now)
        assert claim.kept <= 2, "the rest is for anybody"
        assert claim.kept == 0 or first.priority < 2, "from the most important nothing is kept"
        return claim


WithPlacesKept.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestWithPlacesKept = WithPlacesKept.TestCase


def jain(shares: list[float]) -> float:
    """Return Jain's index of fairness: 1 where all have the same, 1/n where one has all."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def test_tenants_get_tokens_in_proportion_to_their_weights_whatever_the_sizes_of_their_requests() -> None:
    """Four tenants ask for far more than there is; each request runs for a second for each hundred tokens."""
    weights = {"gold": 2.0, "small": 1.0, "large": 1.0, "mixed": 1.0}
    sizes = {"gold": (200,), "small": (20,), "large": (900,), "mixed": (20, 900)}
    rng = random.Random(5)
    fleet = Fleet(1e9)
    dispatcher = Dispatcher(fleet, rng)
    admission = Admission(fleet, dispatcher)
    declared = PoolsDeclared((PoolSpec("default", "vllm", ("*",), (EndpointSpec(A, max_running=8),)),))
    fleet.apply(declared, 0.0)
    bounds = Bounds(requests=10_000, tokens=10**9, bytes=10**9)
    queue = QueueSettings(bounds, 1e6, 1e6, 1e6, 1.0, weights=tuple(weights.items()))
    dispatcher.configure(declared, {"default": Policy("least_request")}, admission.configure({"default": queue}, 0.0))
    served: Counter[str] = Counter()
    tenants, ends, number = {}, [], 0

    def top_up(tenant: str, now: float) -> None:
        nonlocal number
        number += 1
        name, size = f"{tenant}-{number}", rng.choice(sizes[tenant])
        tenants[name] = tenant
        asked = admission.ask(ask(name, prompt=size, limit=0), now, Asker(tenant))
        if isinstance(asked, Decision):
            ends.append((now + size / 100, name))

    for tenant in weights:
        for _ in range(60):
            top_up(tenant, 0.0)
    now = 0.0
    while now < 600:
        now, ended = min(ends)
        ends.remove((now, ended))
        fleet.apply(RequestEnded(ended), now)
        for over in admission.poll(now):
            name, tokens = over.place.request.id, over.place.waiting.tokens
            served[tenants[name]] += tokens
            ends.append((now + tokens / 100, name))
            top_up(tenants[name], now)
    index = jain([served[tenant] / weight for tenant, weight in weights.items()])
    print(f"Jain index of tokens by weight: {index:.4f} ({dict(served)})")
    assert index > 0.99
