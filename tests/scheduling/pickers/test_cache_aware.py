"""The policy ``cache_aware``."""

import random
from collections import Counter

import pytest

from tests.scheduling.ask import A, B, C, ask, candidate
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.pickers.cache_aware import Picker


def order(*endpoints: EndpointView, prompt: int = 1000, seed: int = 1) -> list[str]:
    return [endpoint.address for endpoint in Picker().rank(ask(prompt=prompt), endpoints, random.Random(seed))]


def test_while_loads_are_even_the_longest_match_wins() -> None:
    assert order(candidate(A, requests=1), candidate(B, requests=60, cached=400), candidate(C, cached=350))[0] == B


def test_a_match_of_less_than_three_tenths_does_not_count() -> None:
    assert order(candidate(A, requests=1), candidate(B, requests=60, cached=300))[0] == A


@pytest.mark.parametrize(
    ("fewest", "most", "follows"),
    [(0, 64, True), (0, 65, False), (100, 165, False), (200, 300, True), (200, 301, False)],
)
def test_uneven_loads_drop_the_cache(fewest: int, most: int, follows: bool) -> None:
    ranked = order(candidate(A, requests=fewest), candidate(B, requests=most, cached=1000))
    assert (ranked[0] == B) is follows


def test_a_prompt_that_nobody_knows_goes_to_any_of_the_least_loaded() -> None:
    firsts = Counter(order(candidate(A), candidate(B), candidate(C, requests=1), seed=seed)[0] for seed in range(200))
    assert firsts[A] == pytest.approx(100, abs=30)
    assert firsts[C] == 0


def test_what_it_rests_on_is_said() -> None:
    figures = Picker().explain(ask(prompt=1000), [candidate(A, requests=2, cached=500), candidate(B)])
    assert figures[A] == {"matched": 0.5, "inflight_requests": 2.0, "cache_decides": 1.0}
