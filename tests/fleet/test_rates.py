"""How fast an endpoint turns out to be."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.fleet.gpu import prior
from tidegate.fleet.rates import LARGEST_LOG, Rates, Scale

PRIOR = prior("a100")
ANY = st.floats(allow_nan=True, allow_infinity=True)


def taught(ratio: float, times: int) -> Scale:
    scale = Scale()
    for _ in range(times):
        scale.observe(ratio, 1.0)
    return scale


def test_nothing_is_learned_before_something_was_seen() -> None:
    assert Scale().value == 1.0
    assert Rates(PRIOR).pace == PRIOR


@pytest.mark.parametrize("ratio", [0.1, 0.5, 1.0, 2.0, 10.0])
def test_a_few_dozen_requests_teach_the_speed_whatever_the_prior_was(ratio: float) -> None:
    assert abs(math.log(taught(ratio, 5).value / ratio)) <= abs(math.log(ratio)) / 2
    assert taught(ratio, 60).value == pytest.approx(ratio, rel=0.15)


def test_one_outlier_among_few_samples_does_not_decide() -> None:
    scale = taught(1.0, 10)
    scale.observe(1000.0, 1.0)
    assert scale.value < 1.2


@pytest.mark.parametrize("outlier", [1e-6, 1e6])
def test_a_tenth_of_outliers_is_outvoted(outlier: float) -> None:
    scale, rng = Scale(), random.Random(4)
    for _ in range(300):
        scale.observe(outlier if rng.random() < 0.1 else 2.0 * math.exp(rng.gauss(0, 0.1)), 1.0)
    assert scale.value == pytest.approx(2.0, rel=0.25)


def test_a_speed_that_changes_is_learned_anew() -> None:
    scale = taught(1.0, 500)
    for _ in range(120):
        scale.observe(3.0, 1.0)
    assert scale.value == pytest.approx(3.0, rel=0.15)


@pytest.mark.parametrize("ratio", [0.1, 10.0])
def test_a_speed_that_changes_by_much_is_believed_after_three_clear_observations(ratio: float) -> None:
    scale = taught(1.0, 100)
    for _ in range(2):
        scale.observe(ratio, 1.0)
    assert abs(math.log(scale.value)) < 0.2
    scale.observe(ratio, 1.0)
    assert scale.value == pytest.approx(ratio, rel=0.2)
    for _ in range(3):
        scale.observe(1.0, 1.0)
    assert scale.value == pytest.approx(1.0, rel=0.3)


def test_observations_that_say_little_or_point_both_ways_are_outliers_however_many_come_in_a_row() -> None:
    unclear, both_ways = taught(1.0, 100), taught(1.0, 100)
    for number in range(10):
        unclear.observe(10.0, 0.2)
        both_ways.observe(10.0 if number % 2 else 0.1, 1.0)
    assert unclear.value < 1.5
    assert both_ways.value == pytest.approx(1.0, rel=0.2)


def test_what_says_little_moves_little() -> None:
    unclear, clear = Scale(), Scale()
    unclear.observe(3.0, 0.1)
    clear.observe(3.0, 1.0)
    assert 1.0 < unclear.value < clear.value


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("weight", [0.0, -1.0, 2.0, math.nan])
def test_nonsense_teaches_nothing(ratio: float, weight: float) -> None:
    scale = Scale()
    scale.observe(ratio, 1.0)
    scale.observe(2.0, weight)
    assert (scale.value, scale.samples) == (1.0, 0.0)


@given(st.lists(st.tuples(ANY, ANY), max_size=80))
def test_whatever_is_observed_the_factor_is_a_number_within_bounds(seen: list[tuple[float, float]]) -> None:
    scale = Scale()
    for ratio, weight in seen:
        scale.observe(ratio, weight)
    assert math.exp(-LARGEST_LOG) * 0.999 <= scale.value <= math.exp(LARGEST_LOG) * 1.001


@given(st.floats(0.01, 100.0), st.floats(0.01, 100.0))
def test_a_slower_observation_never_makes_it_look_faster(one: float, other: float) -> None:
    slow, fast = taught(max(one, other), 1), taught(min(one, other), 1)
    assert slow.value >= fast.value


def test_a_restart_takes_half_of_it_back_and_the_rest_is_soon_learned() -> None:
    scale = taught(4.0, 100)
    scale.doubt()
    assert scale.value == pytest.approx(2.0, rel=0.05)
    for _ in range(10):
        scale.observe(1.0, 1.0)
    assert scale.value == pytest.approx(1.0, rel=0.2)


def test_prefill_and_decoding_are_learned_apart() -> None:
    rates = Rates(PRIOR)
    for _ in range(100):
        rates.prefilled(2.0 * PRIOR.prefill_seconds / rates.pace.prefill_seconds, 1.0)
    assert rates.pace.prefill_seconds == pytest.approx(2 * PRIOR.prefill_seconds, rel=0.05)
    assert rates.pace.step_seconds == PRIOR.step_seconds
    for _ in range(100):
        rates.decoded(0.5 * PRIOR.step_seconds / rates.pace.step_seconds, 1.0)
    assert rates.pace.step(20, 5000) == pytest.approx(PRIOR.step(20, 5000) / 2, rel=0.05)
    assert rates.samples == (40.0, 40.0)


def test_the_size_of_the_cache_is_what_the_engine_says() -> None:
    rates = Rates(PRIOR)
    rates.holds(None)
    assert rates.pace.kv_tokens == PRIOR.kv_tokens
    rates.holds(35_000.0)
    assert rates.pace.kv_tokens == 35_000.0
    rates.holds(None)
    assert rates.pace.kv_tokens == 35_000.0


def test_another_gpu_begins_with_its_own_prior() -> None:
    rates = Rates(PRIOR)
    rates.decoded(3.0, 1.0)
    rates.expect(PRIOR)
    assert rates.pace != PRIOR
    rates.expect(prior("h100"))
    assert rates.pace == prior("h100")


def test_what_was_learned_goes_on_elsewhere() -> None:
    one, other = Rates(PRIOR), Rates(PRIOR)
    for ratio in (2.0, 3.0, 1.5):
        one.prefilled(ratio, 1.0)
        one.decoded(ratio, 0.5)
    one.holds(9000.0)
    other.restore(one.image(), 9000.0)
    assert other.pace == one.pace
    one.decoded(2.0, 1.0)
    other.decoded(2.0, 1.0)
    assert other.pace == one.pace
