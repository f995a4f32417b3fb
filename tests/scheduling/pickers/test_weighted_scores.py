"""The policy ``weighted_scores``."""

import random
from collections import Counter

import pytest

from tests.scheduling.ask import A, B, C, ask, candidate
from tidegate.scheduling import pickers
from tidegate.scheduling.pickers.weighted_scores import Picker


def test_the_sum_is_that_of_the_go_endpoint_picker() -> None:
    offered = [
        candidate(A, waiting=0, kv_usage=0.5, cached=0),
        candidate(B, waiting=10, kv_usage=0.25, cached=100),
        candidate(C, waiting=5, kv_usage=0.0, cached=50),
    ]
    figures = Picker().explain(ask(prompt=100), offered)
    assert figures[A] == {"queue": 2.0, "kv_usage": 1.0, "prefix": 0.0, "sum": 3.0}
    assert figures[B] == {"queue": 0.0, "kv_usage": 1.5, "prefix": 3.0, "sum": 4.5}
    assert figures[C]["sum"] == 1.0 + 2.0 + 1.5
    ranked = Picker().rank(ask(prompt=100), offered, random.Random(1))
    assert {endpoint.address for endpoint in ranked[:2]} == {B, C}
    assert ranked[2].address == A


def test_equal_sums_are_drawn_by_lot() -> None:
    rng = random.Random(1)
    firsts = Counter(Picker().rank(ask(), [candidate(A), candidate(B)], rng)[0].address for _ in range(400))
    assert firsts[A] == pytest.approx(200, abs=50)


def test_other_weights_decide_otherwise() -> None:
    offered = [candidate(A, waiting=0, cached=0), candidate(B, waiting=9, cached=100)]
    by_cache = pickers.make("weighted_scores", {"prefix": 1.0, "queue": 0.5})
    by_queue = pickers.make("weighted_scores", {"prefix": 0.5, "queue": 1.0})
    assert by_cache.rank(ask(prompt=100), offered, random.Random(1))[0].address == B
    assert by_queue.rank(ask(prompt=100), offered, random.Random(1))[0].address == A
    assert pickers.make("weighted_scores").rank(ask(prompt=100), offered, random.Random(1))[0].address == B


def test_weights_are_no_business_of_a_policy_that_weighs_nothing() -> None:
    with pytest.raises(ValueError, match="least_tokens has no weights"):
        pickers.make("least_tokens", {"queue": 1.0})
