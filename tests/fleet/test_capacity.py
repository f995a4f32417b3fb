"""Weights that follow what endpoints can do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.fleet.capacity import MOST_WEIGHT, capacity, weights
from tidegate.fleet.gpu import PRIORS, prior

CAPACITIES = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20).map(
    lambda each: [(f"10.0.0.{number}:1", one) for number, one in enumerate(each)]
)


def test_a_faster_gpu_can_do_more() -> None:
    order = [capacity(prior(gpu), 1000, 200) for gpu in ("t4", "rtx4090", "a100", "h100")]
    assert order == sorted(order)
    assert 3 < order[3] / order[1] < 10


@pytest.mark.parametrize("gpu", PRIORS)
def test_longer_requests_are_fewer(gpu: str) -> None:
    pace = prior(gpu)
    assert capacity(pace, 10, 10) > capacity(pace, 1000, 10) > capacity(pace, 1000, 500) > 0
    assert capacity(pace, 0, 0) > 0


def test_the_weights_are_in_proportion() -> None:
    assert weights([("a", 10.0), ("b", 5.0), ("c", 1.0)], {}) == {
        "a": MOST_WEIGHT,
        "b": pytest.approx(50, rel=0.12),
        "c": pytest.approx(10, rel=0.12),
    }


def test_equals_weigh_the_same() -> None:
    assert set(weights([("a", 3.0), ("b", 3.0)], {}).values()) == {MOST_WEIGHT}


def test_a_speed_that_wavers_changes_nothing() -> None:
    before = weights([("a", 10.0), ("b", 5.0)], {})
    for wavering in (4.3, 5.6, 4.6, 5.2):
        assert weights([("a", 10.0), ("b", wavering)], before) == before


def test_a_speed_that_changes_is_told() -> None:
    before = weights([("a", 10.0), ("b", 5.0)], {})
    assert weights([("a", 10.0), ("b", 2.0)], before)["b"] < before["b"]


def test_no_endpoints_have_no_weights() -> None:
    assert weights([], {}) == {}


@given(CAPACITIES, st.dictionaries(st.integers(0, 25).map(lambda n: f"10.0.0.{n}:1"), st.integers(1, MOST_WEIGHT)))
def test_every_weight_is_within_bounds_and_near_its_share(
    capacities: list[tuple[str, float]], before: dict[str, int]
) -> None:
    told = weights(capacities, before)
    most = max(each for _, each in capacities)
    assert set(told) == {address for address, _ in capacities}
    for address, each in capacities:
        assert 1 <= told[address] <= MOST_WEIGHT
        if each / most > 0.1:
            assert told[address] == pytest.approx(MOST_WEIGHT * each / most, rel=0.3)


@given(CAPACITIES)
def test_what_was_told_stays(capacities: list[tuple[str, float]]) -> None:
    told = weights(capacities, {})
    assert weights(capacities, told) == told
