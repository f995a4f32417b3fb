"""The policy ``least_request``."""

import random
from collections import Counter

import pytest

from tests.scheduling.ask import A, B, C, Draws, ask, candidate, dispatcher
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.pickers.least_request import Picker


def order(*endpoints: object) -> list[str]:
    ranked = Picker().rank(ask(), endpoints, Draws([0.4, 0.9, 0.1]))  # type: ignore[arg-type]
    return [endpoint.address for endpoint in ranked]


def test_the_fewest_requests_come_first_and_the_most_last() -> None:
    assert order(candidate(A, requests=5), candidate(B, requests=9), candidate(C, requests=1)) == [C, A, B]


def test_tokens_do_not_count() -> None:
    assert order(candidate(A, requests=2, tokens=0), candidate(B, requests=1, tokens=1e6)) == [B, A]


def test_of_two_idle_endpoints_the_heavier_comes_first() -> None:
    assert order(candidate(A), candidate(B, weight=2)) == [B, A]


def test_twice_the_weight_bears_twice_the_requests() -> None:
    assert order(candidate(A, requests=9), candidate(B, requests=18, weight=2)) == [B, A]
    assert order(candidate(A, requests=9), candidate(B, requests=20, weight=2)) == [A, B]


def test_equals_are_drawn_by_lot() -> None:
    rng = random.Random(3)
    firsts = Counter(Picker().rank(ask(), [candidate(A), candidate(B)], rng)[0].address for _ in range(400))
    assert firsts[A] == pytest.approx(200, abs=50)


def test_over_many_requests_shares_follow_the_weights() -> None:
    _, decides = dispatcher("least_request", A, B, C, rng=random.Random(1), weights={B: 2, C: 3})
    picks = [decides.decide(ask(str(number)), 0.0) for number in range(600)]
    shares = Counter(pick.addresses[0] for pick in picks if isinstance(pick, Decision))
    assert [shares[address] for address in (A, B, C)] == pytest.approx([100, 200, 300], abs=3)
