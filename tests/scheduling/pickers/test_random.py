"""The policy ``random``."""

import random
from collections import Counter

import pytest

from tests.scheduling.ask import A, B, C, ask, candidate
from tidegate.scheduling.pickers.random import Picker


def test_every_endpoint_is_as_likely_whatever_its_weight_and_load() -> None:
    rng = random.Random(11)
    endpoints = [candidate(A, weight=100), candidate(B, requests=50), candidate(C, tokens=1e9)]
    firsts = Counter(Picker().rank(ask(), endpoints, rng)[0].address for _ in range(3000))
    assert all(firsts[address] == pytest.approx(1000, abs=110) for address in (A, B, C))


def test_the_fallback_is_drawn_as_well() -> None:
    rng = random.Random(11)
    endpoints = [candidate(A), candidate(B), candidate(C)]
    orders = {tuple(end.address for end in Picker().rank(ask(), endpoints, rng)) for _ in range(200)}
    assert len(orders) == 6
