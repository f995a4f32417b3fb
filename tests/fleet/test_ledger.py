"""The ledger: what is in flight, and that nothing of it is ever lost or counted twice."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tests.fleet.declare import A, B, C, fleet_of, pool, reservation
from tidegate.fleet.events import PoolsDeclared, RequestEnded, RequestProgressed, RequestReserved
from tidegate.fleet.ledger import Inflight, Ledger, Reservation

LEASE = 45.0


def test_a_reservation_counts_from_the_moment_it_is_made() -> None:
    ledger = Ledger(LEASE)
    ledger.reserve(reservation(prompt=100, output=50), 0.0)
    assert ledger.inflight(A) == Inflight(requests=1, prompt_tokens=100, tokens=150)


def test_reservations_on_one_endpoint_add_up() -> None:
    ledger = Ledger(LEASE)
    ledger.reserve(reservation("r1", prompt=100, output=50), 0.0)
    ledger.reserve(reservation("r2", prompt=7, output=3), 0.0)
    ledger.reserve(reservation("r3", address=B, prompt=1, output=1), 0.0)
    assert ledger.inflight(A) == Inflight(2, 107, 160)
    assert ledger.inflight(B) == Inflight(1, 1, 2)


def test_an_endpoint_nobody_was_sent_to_has_nothing_in_flight() -> None:
    ledger = Ledger(LEASE)
    assert ledger.inflight(A) == Inflight(0, 0, 0)
    assert list(ledger.addresses()) == []


def test_asking_for_an_idle_endpoint_leaves_no_trace_of_it() -> None:
    ledger = Ledger(LEASE)
    for number in range(1000):
        ledger.inflight(f"10.0.0.1:{number}")
    ledger.reserve(reservation(), 0.0)
    assert list(ledger.addresses()) == [A]


def test_a_released_reservation_no_longer_counts() -> None:
    ledger = Ledger(LEASE)
    ledger.reserve(reservation("r1"), 0.0)
    assert ledger.release("r1") == reservation("r1")
    assert ledger.inflight(A) == Inflight()
    assert "r1" not in ledger
    assert len(ledger) == 0


def test_a_released_reservation_is_not_released_again() -> None:
    ledger = Ledger(LEASE)
    ledger.reserve(reservation("r1"), 0.0)
    ledger.reserve(reservation("r2"), 0.0)
    ledger.release("r1")
    assert ledger.release("r1") is None
    assert ledger.inflight(A).requests == 1


def test_releasing_what_was_never_reserved_says_so() -> None:
    assert Ledger(LEASE).release("never") is None


def test_a_live_id_cannot_be_reserved_again() -> None:
    ledger = Ledger(LEASE)
    ledger.reserve(reservation("r1"), 0.0)
    with pytest.raises(ValueError, match="r1 is live already"):
        ledger.reserve(reservation("r1", address=B), 1.0)
    assert ledger.inflight(B).requests == 0
    assert len(ledger) == 1


def test_a_lease_runs_out_exactly_at_its_end() -> None:
    ledger = Ledger(LEASE)
    ledger.reserve(reservation("r1"), 10.0)
    assert ledger.expire(10.0 + LEASE - 0.001) == []
    assert ledger.expire(10.0 + LEASE) == [reservation("r1")]
    assert ledger.inflight(A) == Inflight()


def test_a_sign_of_life_starts_the_lease_anew() -> None:
    ledger = Ledger(LEASE)
    ledger.reserve(reservation("r1"), 0.0)
    ledger.reserve(reservation("r2"), 0.0)
    assert ledger.renew("r1", 30.0)
    assert [lost.id for lost in ledger.expire(LEASE)] == ["r2"]
    assert [lost.id for lost in ledger.expire(30.0 + LEASE)] == ["r1"]


def test_a_sign_of_life_of_a_released_reservation_does_not_bring_it_back() -> None:
    ledger = Ledger(LEASE)
    ledger.reserve(reservation("r1"), 0.0)
    ledger.release("r1")
    assert not ledger.renew("r1", 1.0)
    assert len(ledger) == 0


def test_a_lost_reservation_is_not_released_again() -> None:
    ledger = Ledger(LEASE)
    ledger.reserve(reservation("r1"), 0.0)
    ledger.expire(LEASE)
    assert ledger.release("r1") is None


class AnyOrder(RuleBasedStateMachine):
    """Drives a fleet's ledger through any order of what can happen to it, beside a plain dictionary of what is live."""

    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.made = 0
        self.fleet = fleet_of(pool(A, B, C), lease_seconds=LEASE)
        self.live: dict[str, tuple[Reservation, float]] = {}

    @rule(target=ids, address=st.sampled_from([A, B, C]), prompt=st.integers(0, 200_000), output=st.integers(0, 9000))
    def reserve(self, address: str, prompt: int, output: int) -> str:
        self.made += 1
        made = Reservation(str(self.made), "default", address, prompt, output, self.now)
        self.fleet.apply(RequestReserved(made), self.now)
        self.live[made.id] = made, self.now + LEASE
        return made.id

    @rule(target=ids, again=ids)
    def reserve_again(self, again: str) -> str:
        made = Reservation(again, "default", A, 1, 1, self.now)
        self.fleet.apply(RequestReserved(made), self.now)
        self.live.setdefault(again, (made, self.now + LEASE))
        return again

    @rule(ended=consumes(ids))
    def release(self, ended: str) -> None:
        self.fleet.apply(RequestEnded(ended, 10), self.now)
        self.live.pop(ended, None)

    @rule(ended=ids)
    def release_and_release_again(self, ended: str) -> None:
        first = self.fleet.apply(RequestEnded(ended), self.now)
        assert bool(first) == (self.live.pop(ended, None) is not None)
        assert self.fleet.apply(RequestEnded(ended), self.now) == []

    @rule(running=ids)
    def renew(self, running: str) -> None:
        self.fleet.apply(RequestProgressed(running), self.now)
        if running in self.live:
            self.live[running] = self.live[running][0], self.now + LEASE

    @rule(seconds=st.floats(0.0, 2 * LEASE))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        lost = {change.reservation.id for change in self.fleet.expire(self.now)}
        expected = {key for key, (_, until) in self.live.items() if until <= self.now}
        assert lost == expected
        for key in expected:
            del self.live[key]

    @rule(addresses=st.sets(st.sampled_from([A, B, C])))
    def declare(self, addresses: set[str]) -> None:
        self.fleet.apply(PoolsDeclared((pool(*sorted(addresses)),) if addresses else ()), self.now)

    @invariant()
    def sums_equal_the_live_reservations(self) -> None:
        requests: Counter[str] = Counter()
        prompts: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        for made, _ in self.live.values():
            requests[made.address] += 1
            prompts[made.address] += made.prompt_tokens
            tokens[made.address] += made.prompt_tokens + made.output_tokens
        assert len(self.fleet.ledger) == len(self.live)
        assert set(self.fleet.ledger.addresses()) == set(requests)
        for address in (A, B, C):
            sums = self.fleet.ledger.inflight(address)
            assert sums == Inflight(requests[address], prompts[address], tokens[address])

    def teardown(self) -> None:
        for key in list(self.live):
            self.fleet.apply(RequestEnded(key), self.now)
        assert len(self.fleet.ledger) == 0
        assert list(self.fleet.ledger.addresses()) == []


TestAnyOrderOfEvents = AnyOrder.TestCase
TestAnyOrderOfEvents.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
