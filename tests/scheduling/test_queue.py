import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidegate.scheduling.bands import REMEMBERED, Waiting
from tidegate.scheduling.queue import Ahead, Bounds, Full, Offer, Queue

NEVER = 1e9
_numbers = itertools.count()


def waiting(
    name: str = "",
    *,
    tenant: str = "a",
    priority: int = 0,
    tokens: int = 1,
    size: int = 1,
    arrived: float = 0.0,
    deadline: float = NEVER,
) -> Waiting:
    return Waiting(name or f"r{next(_numbers)}", tenant, priority, tokens, size, arrived, deadline)


def queue(*requests: Waiting, bounds: Bounds | None = None, ageing: float = NEVER, **weights: float) -> Queue:
    made = Queue(bounds or Bounds(), ageing, weights)
    for request in requests:
        assert made.offer(request) == Offer()
    return made


def drained(from_: Queue, now: float = 0.0) -> list[Waiting]:
    taken = []
    while (request := from_.take(now)) is not None:
        taken.append(request)
    return taken


def ids(requests: Iterable[Waiting]) -> list[str]:
    return [request.id for request in requests]


def test_a_higher_priority_goes_first() -> None:
    assert ids(drained(queue(waiting("low"), waiting("high", priority=2), waiting("mid", priority=1)))) == [
        "high",
        "mid",
        "low",
    ]


def test_a_long_wait_raises_a_request_into_the_band_above_and_no_steady_stream_starves_it() -> None:
    made = queue(waiting("old", arrived=0.0), ageing=10.0)
    served = []
    for second in range(30):
        made.offer(waiting(priority=1, arrived=float(second)))
        request = made.take(float(second))
        assert request is not None
        served.append(request.id)
        if request.id == "old":
            break
    assert 9 <= len(served) <= 12


def test_inside_a_tenant_the_earliest_deadline_goes_first_and_then_the_first_to_arrive() -> None:
    made = queue(
        waiting("late", deadline=9.0),
        waiting("second", deadline=5.0, arrived=2.0),
        waiting("first", deadline=5.0, arrived=1.0),
    )
    assert ids(drained(made)) == ["first", "second", "late"]


def test_tenants_share_by_tokens_and_not_by_requests() -> None:
    big = [waiting(tenant="big", tokens=1000) for _ in range(20)]
    small = [waiting(tenant="small", tokens=10) for _ in range(2000)]
    served: Counter[str] = Counter()
    made = queue(*big, *small)
    while served["big"] < 10_000:
        request = made.take(0.0)
        assert request is not None
        served[request.tenant] += request.tokens
    assert abs(served["big"] - served["small"]) <= 1000


def test_weights_set_the_shares() -> None:
    made = queue(*(waiting(tenant=name, tokens=10) for name in ("gold", "tin") for _ in range(400)), gold=3.0)
    served = Counter(request.tenant for request in (made.take(0.0) for _ in range(400)) if request is not None)
    assert served == {"gold": 300, "tin": 100}


def test_asking_for_one_thing_at_a_time_gets_nobody_more_than_a_share() -> None:
    made = queue(*(waiting(tenant="patient", tokens=10) for _ in range(4_000)))
    served: Counter[str] = Counter()
    made.offer(waiting(tenant="sly", tokens=500))
    for _ in range(1_000):
        request = made.take(0.0)
        assert request is not None
        served[request.tenant] += request.tokens
        if request.tenant == "sly":
            made.offer(waiting(tenant="sly", tokens=500))
    assert abs(served["sly"] - served["patient"]) <= 500


def test_a_tenant_that_was_away_has_no_credit_from_then() -> None:
    made = queue(*(waiting(tenant="busy", tokens=10) for _ in range(200)))
    for _ in range(100):
        made.take(0.0)
    for _ in range(50):
        made.offer(waiting(tenant="back", tokens=10))
    served = Counter(request.tenant for request in (made.take(0.0) for _ in range(50)) if request is not None)
    assert abs(served["busy"] - served["back"]) <= 1


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 100)), min_size=1, max_size=200))
def test_two_tenants_who_both_wait_never_differ_by_more_than_one_request_each(sizes: list[tuple[str, int]]) -> None:
    made = queue(*(waiting(tenant=tenant, tokens=tokens) for tenant, tokens in sizes))
    left = Counter(tenant for tenant, _ in sizes)
    largest = max(tokens for _, tokens in sizes)
    served: Counter[str] = Counter(dict.fromkeys(left, 0))
    while len(left) > 1:
        request = made.take(0.0)
        assert request is not None
        served[request.tenant] += request.tokens
        left[request.tenant] -= 1
        shares = [served[tenant] for tenant in left]
        assert max(shares) - min(shares) <= 2 * largest
        left = +left


@pytest.mark.parametrize(
    ("bounds", "full"),
    [
        (Bounds(requests=2), Full.REQUESTS),
        (Bounds(tokens=20), Full.TOKENS),
        (Bounds(bytes=20), Full.BYTES),
        (Bounds(tenant_requests=2), Full.TENANT_REQUESTS),
        (Bounds(tenant_tokens=20), Full.TENANT_TOKENS),
    ],
)
def test_a_request_beyond_a_bound_is_told_which(bounds: Bounds, full: Full) -> None:
    made = queue(waiting(tokens=10, size=10), waiting(tokens=10, size=10), bounds=bounds)
    assert made.offer(waiting(tokens=10, size=10)) == Offer(full)
    assert len(made) == 2


def test_the_lowest_and_latest_make_room_for_a_higher_priority() -> None:
    low = [waiting(f"low{number}", tenant=f"t{number}") for number in range(3)]
    made = queue(*low, waiting("mid", priority=1, tenant="m"), bounds=Bounds(requests=4))
    assert ids(made.offer(waiting("high", priority=2, tenant="h")).shed) == ["low2"]
    assert ids(drained(made)) == ["high", "mid", "low0", "low1"]


def test_nobody_is_shed_in_vain() -> None:
    made = queue(waiting("low", tokens=5), waiting("equal", priority=1, tokens=10), bounds=Bounds(tokens=15))
    assert made.offer(waiting(priority=1, tokens=10)) == Offer(Full.TOKENS)
    assert "low" in made


def test_no_tenant_makes_room_for_itself_beyond_its_own_bound() -> None:
    made = queue(waiting("low"), bounds=Bounds(tenant_requests=1))
    assert made.offer(waiting(priority=9)) == Offer(Full.TENANT_REQUESTS)


def test_who_is_late_is_taken_out_and_named() -> None:
    made = queue(waiting("b", deadline=2.0), waiting("a", deadline=1.0), waiting("c", deadline=3.0))
    assert ids(made.expire(2.0)) == ["a", "b"]
    assert ids(drained(made)) == ["c"]


def test_a_client_that_left_is_never_served() -> None:
    made = queue(waiting("a"), waiting("b"))
    left = made.leave("a")
    assert left is not None
    assert left.id == "a"
    assert made.leave("a") is None
    assert ids(drained(made)) == ["b"]


def test_the_same_id_may_wait_again_later() -> None:
    made = queue(waiting("a", deadline=1.0), waiting("b", deadline=2.0))
    made.leave("a")
    made.offer(waiting("a", deadline=3.0))
    assert ids(drained(made)) == ["b", "a"]


def test_a_request_cannot_wait_twice_or_for_nothing() -> None:
    made = queue(waiting("a"))
    with pytest.raises(ValueError, match="waits already"):
        made.offer(waiting("a"))
    with pytest.raises(ValueError, match="no tokens"):
        made.offer(waiting(tokens=0))
    with pytest.raises(ValueError, match="above zero"):
        Queue(Bounds(), 0.0)


def test_the_next_is_the_one_that_is_taken() -> None:
    made = queue(waiting(tenant="a"), waiting(tenant="b", priority=1))
    following = made.next(0.0)
    assert following is made.take(0.0)
    assert Queue(Bounds(), 1.0).next(0.0) is None


def test_who_is_ahead_counts_the_higher_bands_and_the_fair_shares_of_others() -> None:
    made = queue(
        waiting("high", tenant="h", priority=1, tokens=7),
        waiting("mine", tokens=100),
        *(waiting(tenant="b", tokens=10) for _ in range(50)),
    )
    assert made.ahead("a", 0)[:2] == (1 + 1 + 11, 7 + 100 + 110), "b may pass while a's own 100 tokens are served"
    assert made.ahead("h", 1) == Ahead(1, 7, {}, waits=True)
    assert made.ahead("new", 2) == Ahead(0, 0)
    assert made.ahead("new", 0)[:2] == (1 + 2, 7 + 100 + 10), "one of each other tenant"


def test_others_of_a_band_may_pass_until_they_have_had_as_much() -> None:
    made = queue(waiting("mine", tokens=100), waiting(tenant="b", tokens=10), waiting(tenant="c", tokens=80), c=2.0)
    of_mine = made.ahead("a", 0)
    assert of_mine.tokens == 100 + 10 + 80
    assert of_mine.rivals == {"b": 90, "c": 120}
    assert of_mine.waits, "so may tenants of whom nothing waits"
    of_new = made.ahead("new", 0)
    assert not any(of_new.rivals.values())
    assert not of_new.waits, "one of whom nothing waits is passed by nobody who comes later"


def test_a_band_stands_higher_the_longer_its_oldest_waits_and_batch_work_stays_below_all_others() -> None:
    made = queue(waiting(), waiting(priority=-2), ageing=10.0)
    assert [made.rank(0, now) for now in (0.0, 5.0, 20.0)] == [0.0, 0.5, 2.0]
    assert made.rank(7, 20.0) == 7, "nothing of it waits"
    assert made.rank(-2, 10.0) == -1.0
    assert -1e-9 < made.rank(-2, 1000.0) < 0.0


def test_what_is_ahead_is_about_what_is_served_before() -> None:
    rng = random.Random(3)
    for _ in range(50):
        made = queue(
            *(
                waiting(tenant=rng.choice("abc"), priority=rng.choice((0, 0, 1)), tokens=rng.randrange(1, 100))
                for _ in range(60)
            )
        )
        for _ in range(20):
            made.take(0.0)
        requests, tokens, *_ = made.ahead("a", 0)
        made.offer(waiting("mine", tenant="a", tokens=50, arrived=1.0))
        served = ids(drained(made))
        assert abs(served.index("mine") - requests) <= 4
        assert tokens > 0


def test_the_first_deadline_is_that_of_what_still_waits() -> None:
    made = queue(waiting("first", deadline=1.0), waiting("second", deadline=2.0))
    assert made.first_deadline == 1.0
    made.leave("first")
    assert made.first_deadline == 2.0
    made.leave("second")
    assert made.first_deadline == math.inf


def test_coming_and_going_leaves_nothing_behind() -> None:
    made = queue(waiting("stays", deadline=0.0))
    for _ in range(10_000):
        request = waiting(deadline=1.0)
        made.offer(request)
        made.leave(request.id)
    band = made._bands[0]
    assert len(band.arrivals) + len(band.tenants["a"].heap) + len(made._deadlines) < 300


def test_a_million_names_are_not_remembered() -> None:
    made = queue(*(waiting(tenant="steady") for _ in range(4_000)))
    for number in range(3_000):
        made.offer(waiting(tenant=f"t{number}", tokens=1_000_000))
        made.take(0.0)
    assert len(made._bands[0].ahead) <= REMEMBERED


class AnyOrder(RuleBasedStateMachine):
    """Arrivals, cancellations, expiry and service in any order, against a plain list of what waits."""

    def __init__(self) -> None:
        super().__init__()
        self.bounds = Bounds(requests=12, tokens=400, bytes=400, tenant_requests=6, tenant_tokens=250)
        self.queue = Queue(self.bounds, 5.0, {"a": 2.0})
        self.model: dict[str, Waiting] = {}
        self.now = 0.0
        self.rng = random.Random(0)

    @rule(
        tenant=st.sampled_from("abc"),
        priority=st.integers(-1, 2),
        tokens=st.integers(1, 120),
        size=st.integers(0, 120),
        patience=st.floats(0.0, 20.0),
    )
    def arrive(self, tenant: str, priority: int, tokens: int, size: int, patience: float) -> None:
        request = waiting(
            tenant=tenant,
            priority=priority,
            tokens=tokens,
            size=size,
            arrived=self.now,
            deadline=self.now + patience,
        )
        offer = self.queue.offer(request)
        assert offer.refused is None or not offer.shed
        for shed in offer.shed:
            assert shed.priority < priority
            assert self.model.pop(shed.id) == shed
        if offer.refused is None:
            self.model[request.id] = request

    @precondition(lambda self: self.model)
    @rule(at=st.integers(0))
    def cancel(self, at: int) -> None:
        name = sorted(self.model)[at % len(self.model)]
        assert self.queue.leave(name) == self.model.pop(name)

    @rule(seconds=st.floats(0.0, 4.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        late = {request.id for request in self.model.values() if request.deadline <= self.now}
        assert set(ids(self.queue.expire(self.now))) == late
        self.model = {name: request for name, request in self.model.items() if name not in late}

    @rule()
    def serve(self) -> None:
        taken = self.queue.take(self.now)
        if not self.model:
            assert taken is None
            return
        assert taken is not None
        assert self.model.pop(taken.id) == taken
        rivals = [one for one in self.model.values() if (one.tenant, one.priority) == (taken.tenant, taken.priority)]
        assert all((taken.deadline, taken.arrived) <= (one.deadline, one.arrived) for one in rivals)
        highest = max((one.priority for one in self.model.values()), default=taken.priority)
        if taken.priority < highest:
            oldest = min(one.arrived for one in [*rivals, taken, *self.model.values()])
            assert self.now - oldest > 0, "only a wait raises a request"

    @invariant()
    def holds_what_waits_and_no_more_than_it_may(self) -> None:
        assert set(ids(self.queue)) == set(self.model)
        assert len(self.queue) == len(self.model) <= self.bounds.requests
        assert self.queue.tokens == sum(one.tokens for one in self.model.values()) <= self.bounds.tokens
        assert self.queue.bytes == sum(one.bytes for one in self.model.values()) <= self.bounds.bytes
        for tenant in "abc":
            own = [one for one in self.model.values() if one.tenant == tenant]
            assert len(own) <= self.bounds.tenant_requests
            assert sum(one.tokens for one in own) <= self.bounds.tenant_tokens
        for tenant in "abcd":
            requests, tokens, rivals, _ = self.queue.ahead(tenant, 1)
            assert 0 <= requests <= len(self.model)
            assert 0 <= tokens <= self.queue.tokens
            assert all(more >= 0 for more in rivals.values())
        assert self.queue.first_deadline == min((one.deadline for one in self.model.values()), default=math.inf)

    def teardown(self) -> None:
        while self.queue.take(self.now) is not None:
            pass
        assert (len(self.queue), self.queue.tokens, self.queue.bytes) == (0, 0, 0)
        assert not self.queue._bands
        assert not self.queue._tenants


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase
