"""The policy ``power_of_two``."""

import random
from collections import Counter

import pytest

from tests.scheduling.ask import A, B, C, D, Draws, ask, candidate
from tidegate.scheduling.pickers.power_of_two import Picker


def test_of_two_the_less_loaded_is_picked() -> None:
    busy, idle = candidate(A, requests=9), candidate(B, requests=1)
    for seed in range(20):
        ranked = Picker().rank(ask(), [busy, idle], random.Random(seed))
        assert [endpoint.address for endpoint in ranked] == [B, A]


def test_the_weight_counts() -> None:
    large, small = candidate(A, requests=5, weight=8), candidate(B, requests=1)
    assert Picker().rank(ask(), [large, small], Draws([0.5]))[0].address == A


def test_with_as_many_requests_the_fewer_tokens_win() -> None:
    assert Picker().rank(ask(), [candidate(A, tokens=9), candidate(B, tokens=8)], Draws([0.9]))[0].address == B


def test_the_most_loaded_is_never_picked_and_the_others_sometimes_are() -> None:
    rng = random.Random(4)
    offered = [candidate(address, requests=load) for load, address in enumerate((A, B, C, D))]
    firsts = Counter(Picker().rank(ask(), offered, rng)[0].address for _ in range(1200))
    # Of the six pairs, A is in three, B in two without A, C in one without either.
    assert [firsts[address] for address in (A, B, C, D)] == pytest.approx([600, 400, 200, 0], abs=70)
    assert firsts[D] == 0
