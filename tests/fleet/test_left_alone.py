"""Breakers within the fleet: they hear how requests end, decisions go by them, and every replica has the same."""

import random

from tests.fleet.declare import A, B, reservation, seen
from tests.scheduling.ask import ask
from tidegate.fleet.breaker import Breaker, BreakerRules, Circuit
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import PoolsDeclared, RequestEnded, RequestReserved, TimePassed
from tidegate.fleet.evidence import Ending
from tidegate.fleet.health import HealthRules
from tidegate.fleet.state import Fleet
from tidegate.scheduling.dispatch import Decision, Dispatcher
from tidegate.scheduling.policy import Policy

RULES = BreakerRules(consecutive=3.0, open_seconds=5.0)


def declared(rules: BreakerRules | None = RULES) -> PoolsDeclared:
    return PoolsDeclared((PoolSpec("default", "vllm", ("*",), (EndpointSpec(A), EndpointSpec(B)), breaker=rules),))


class Pool:
    """Two endpoints, and who decides between them."""

    def __init__(self) -> None:
        self.fleet, self.now, self.number = Fleet(45.0), 100.0, 0
        self.fleet.apply(declared(), self.now)
        self.decides = Dispatcher(self.fleet, random.Random(7))
        self.decides.configure(declared(), {"default": Policy("least_request")})

    def end(self, address: str, ending: Ending, *, at: float | None = None) -> None:
        self.number += 1
        one = reservation(f"e{self.number}", address=address, at=self.now)
        self.fleet.apply(RequestReserved(one), self.now)
        self.fleet.apply(RequestEnded(one.id, ending=ending), self.now if at is None else at)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.fleet.apply(TimePassed(), self.now)

    def decide(self) -> Decision:
        self.number += 1
        decision = self.decides.decide(ask(f"d{self.number}"), self.now)
        assert isinstance(decision, Decision)
        return decision

    def circuit(self, address: str) -> Circuit:
        return seen(self.fleet, address, self.now).circuit

    def break_(self, address: str) -> None:
        for _ in range(3):
            self.end(address, Ending.SERVER_ERROR)
        assert self.circuit(address) is Circuit.OPEN


def test_an_endpoint_that_failed_its_requests_is_neither_picked_nor_a_fallback() -> None:
    pool = Pool()
    pool.break_(A)
    assert {pool.decide().addresses for _ in range(20)} == {(B,)}
    said, at = pool.fleet._endpoints[A].condition.said["breaker"]
    assert (said.reasons, at) == (("server_error",), 100.0)


def test_half_open_it_gets_one_request_at_a_time_and_is_nobodys_fallback() -> None:
    pool = Pool()
    pool.break_(A)
    pool.pass_time(10.0)
    decisions = [pool.decide() for _ in range(20)]
    (trial,) = (one for one in decisions if A in one.addresses)
    assert trial.addresses == (A, B)
    pool.fleet.apply(RequestEnded(trial.reservation.id, ending=Ending.SERVED), pool.now)
    (second,) = (one for one in [pool.decide() for _ in range(20)] if A in one.addresses)
    pool.fleet.apply(RequestEnded(second.reservation.id, ending=Ending.SERVED), pool.now)
    assert pool.circuit(A) is Circuit.CLOSED
    pool.pass_time(HealthRules().warm_up_seconds)
    assert len([one for one in [pool.decide() for _ in range(20)] if one.addresses[0] == A]) > 15


def test_where_all_fail_all_are_asked_and_each_request_has_its_fallbacks() -> None:
    pool = Pool()
    pool.break_(A)
    pool.break_(B)
    assert {pool.decide().addresses for _ in range(20)} == {(A, B), (B, A)}


def test_how_a_request_ended_is_not_known_says_nothing() -> None:
    pool = Pool()
    for number in range(10):
        pool.fleet.apply(RequestReserved(reservation(f"r{number}")), 100.0)
        pool.fleet.apply(RequestEnded(f"r{number}", failed=True), 100.0)
    assert pool.circuit(A) is Circuit.CLOSED
    assert pool.fleet._endpoints[A].breaker is None


def test_a_trial_that_came_to_nothing_lets_another_one_try() -> None:
    pool = Pool()
    pool.break_(A)
    pool.pass_time(10.0)
    trial = next(one for one in iter(pool.decide, None) if one.addresses[0] == A)
    assert pool.circuit(A) is Circuit.TRYING
    pool.fleet.apply(RequestEnded(trial.reservation.id), pool.now)
    assert pool.circuit(A) is Circuit.HALF_OPEN


def test_a_trial_whose_lease_runs_out_lets_another_one_try() -> None:
    pool = Pool()
    pool.break_(A)
    pool.pass_time(10.0)
    trial = next(one for one in iter(pool.decide, None) if one.addresses[0] == A)
    pool.now += 30.0
    assert pool.circuit(A) is Circuit.TRYING
    pool.now += 30.0
    pool.fleet.expire(pool.now)
    assert trial.reservation.id not in pool.fleet.ledger
    assert pool.circuit(A) is Circuit.HALF_OPEN


def test_a_pool_without_breakers_forgets_what_they_remembered() -> None:
    pool = Pool()
    pool.break_(A)
    pool.fleet.apply(declared(None), pool.now)
    assert pool.circuit(A) is Circuit.CLOSED
    for _ in range(10):
        pool.end(A, Ending.SERVER_ERROR)
    assert pool.circuit(A) is Circuit.CLOSED


def test_who_only_joins_now_goes_by_the_same_breakers() -> None:
    pool = Pool()
    pool.break_(A)
    pool.pass_time(10.0)
    trial = next(one for one in iter(pool.decide, None) if one.addresses[0] == A)
    replica = Fleet(45.0)
    replica.restore(pool.fleet.image(), pool.now)
    assert seen(replica, A, pool.now).circuit is Circuit.TRYING
    for fleet in (pool.fleet, replica):
        fleet.apply(RequestEnded(trial.reservation.id, ending=Ending.RESET), pool.now)
    theirs, ours = replica._endpoints[A].breaker, pool.fleet._endpoints[A].breaker
    assert isinstance(ours, Breaker)
    assert theirs == ours
    assert theirs is not ours
    assert ours.openings == 2


def test_an_endpoint_that_is_well_costs_no_memory() -> None:
    pool = Pool()
    pool.end(A, Ending.SERVER_ERROR)
    pool.end(A, Ending.SERVED)
    assert pool.fleet._endpoints[A].breaker is not None
    pool.now += 120.0
    pool.end(A, Ending.SERVED)
    assert pool.fleet._endpoints[A].breaker is None
