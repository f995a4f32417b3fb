"""What endpoints that were declared alike teach of one another."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.declare import A, B, C, fleet_of, reservation, seen
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import RequestEnded, RequestReserved
from tidegate.fleet.gpu import prior
from tidegate.fleet.kin import Kin, alike
from tidegate.fleet.rates import TELLING, Rates, Scale
from tidegate.fleet.state import Fleet

PRIOR = prior("a100")


def family(count: int) -> list[Rates]:
    members = [Rates(PRIOR) for _ in range(count)]
    Kin(members)
    return members


def teach(rates: Rates, factor: float, times: int, rng: random.Random | None = None) -> None:
    """Have it be seen that decoding takes ``factor`` times as long as the prior says, more or less."""
    for _ in range(times):
        seen = factor * math.exp(rng.gauss(0.0, 0.1) if rng else 0.0)
        rates.decoded(seen * PRIOR.step_seconds / rates.pace.step_seconds, 1.0)


def factor(rates: Rates) -> float:
    return rates.pace.step_seconds / PRIOR.step_seconds


def test_who_was_never_asked_counts_as_the_one_that_was() -> None:
    asked, *others = family(4)
    teach(asked, 0.5, 30)
    assert factor(asked) == pytest.approx(0.5, rel=0.1)
    assert {factor(one) for one in others} == {factor(asked)}
    assert all(one.pace.prefill_seconds == PRIOR.prefill_seconds for one in (asked, *others))


def test_its_first_own_requests_begin_from_there() -> None:
    asked, new = family(2)
    teach(asked, 0.5, 30)
    teach(new, 0.5, 1)
    assert factor(new) == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_equal_ones_stay_exactly_equal_whatever_chance_brings(seed: int) -> None:
    members, rng = family(4), random.Random(seed)
    apart = 0
    for _ in range(200):
        teach(rng.choice(members), 0.7, 1, rng)
        apart += len({factor(one) for one in members}) > 1
    assert apart <= 4
    assert factor(members[0]) == pytest.approx(0.7, rel=0.1)


def test_a_slow_one_is_told_apart_after_a_few_requests_and_the_others_stay_equal() -> None:
    slow, *others = family(4)
    for one in others:
        teach(one, 1.0, 20)
    teach(slow, 2.0, 8)
    assert factor(slow) > 1.4
    assert len({factor(one) for one in others}) == 1
    assert factor(others[0]) == pytest.approx(1.0, rel=0.05)
    teach(slow, 2.0, 40)
    assert factor(slow) == pytest.approx(2.0, rel=0.1)


def test_one_that_becomes_well_again_is_among_its_kin_again() -> None:
    sick, well = family(2)
    teach(well, 1.0, 40)
    teach(sick, 3.0, 40)
    assert factor(sick) > 2 * factor(well)
    teach(sick, 1.0, 200)
    assert factor(sick) == factor(well)


def test_of_two_kinds_a_new_one_is_taken_for_the_more_common() -> None:
    fast, *slow, new = family(4)
    teach(fast, 0.5, 30)
    for one in slow:
        teach(one, 2.0, 30)
    assert factor(new) == factor(slow[0])


def test_of_many_it_is_reckoned_once_for_a_sixteenth_that_saw_something() -> None:
    asked, *others = family(160)
    teach(asked, 0.5, 9)
    assert {factor(one) for one in (asked, *others)} == {1.0}
    teach(asked, 0.5, 1)
    (count,) = {factor(one) for one in (asked, *others)}
    assert count < 0.7


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.integers(0, 40)), max_size=20),
)
def test_what_counts_lies_among_what_was_seen_and_keeps_its_order(known: list[tuple[float, int]]) -> None:
    scales = []
    for log, samples in known:
        scale = Scale()
        scale.restore((log if samples else 0.0, 0.1, float(samples), 0.0))
        scales.append(scale)
    counts = alike(scales)
    seen = [(scale.log, count) for scale, count in zip(scales, counts, strict=True) if scale.samples]
    if not seen:
        assert all(count == 0.0 for count in counts)
        return
    least, most = min(log for log, _ in seen), max(log for log, _ in seen)
    assert all(least - 1e-9 <= count <= most + 1e-9 for count in counts)
    ordered = [count for _, count in sorted(seen)]
    assert ordered == sorted(ordered)


@given(st.floats(-3, 3), st.floats(2 * TELLING, 2))
def test_who_was_seen_often_to_differ_is_not_made_equal(log: float, apart: float) -> None:
    scales = [Scale(), Scale()]
    scales[0].restore((log, 0.1, 40.0, 0.0))
    scales[1].restore((log + apart, 0.1, 40.0, 0.0))
    assert alike(scales) == [pytest.approx(log), pytest.approx(log + apart)]


def test_a_pool_learns_from_those_that_are_declared_alike_and_tells_its_replicas() -> None:
    members = tuple(EndpointSpec(address, gpu=gpu) for address, gpu in ((A, ""), (B, ""), (C, "h100")))
    fleet = fleet_of(PoolSpec("default", "vllm", ("*",), members))
    before = {address: seen(fleet, address, 0.0).pace for address in (A, B, C)}
    for number in range(10):
        now = 10.0 * number
        fleet.apply(RequestReserved(reservation(f"r{number}", prompt=2000, output=200, at=now)), now)
        fleet.apply(RequestEnded(f"r{number}", output_tokens=200, ttft=2.0, duration=9.0), now + 9.0)
    after = {address: seen(fleet, address, 200.0).pace for address in (A, B, C)}
    assert after[A] == after[B] != before[A]
    assert after[C] == before[C]
    replica = Fleet(45.0)
    replica.restore(fleet.image(), 200.0)
    assert {address: seen(replica, address, 200.0).pace for address in (A, B, C)} == after
