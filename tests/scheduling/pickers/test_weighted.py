"""The policy ``weighted``."""

import random
from collections import Counter

import pytest

from tests.scheduling.ask import A, B, C, Draws, ask, candidate
from tidegate.scheduling.pickers.weighted import Picker


def test_chances_follow_the_weights() -> None:
    rng = random.Random(5)
    endpoints = [candidate(A, weight=1), candidate(B, weight=2), candidate(C, weight=5)]
    firsts = Counter(Picker().rank(ask(), endpoints, rng)[0].address for _ in range(8000))
    assert [firsts[address] for address in (A, B, C)] == pytest.approx([1000, 2000, 5000], abs=200)


def test_the_fallback_is_drawn_by_the_weights_that_are_left() -> None:
    rng = random.Random(5)
    endpoints = [candidate(A, weight=1), candidate(B, weight=2), candidate(C, weight=5)]
    orders = [[end.address for end in Picker().rank(ask(), endpoints, rng)] for _ in range(8000)]
    seconds = Counter(order[1] for order in orders if order[0] == C)
    assert seconds[B] / (seconds[A] + seconds[B]) == pytest.approx(2 / 3, abs=0.03)


def test_load_does_not_count() -> None:
    rng = random.Random(5)
    endpoints = [candidate(A, requests=99, tokens=1e9), candidate(B)]
    firsts = Counter(Picker().rank(ask(), endpoints, rng)[0].address for _ in range(2000))
    assert firsts[A] == pytest.approx(1000, abs=120)


@pytest.mark.parametrize("drawn", [0.0, 1.0 - 2.0**-53])
def test_the_ends_of_the_random_range_are_harmless(drawn: float) -> None:
    endpoints = [candidate(A, weight=1), candidate(B, weight=1000)]
    assert len(Picker().rank(ask(), endpoints, Draws([drawn]))) == 2
