"""The policy ``least_tokens``."""

import random
from collections import Counter

import pytest

from tests.scheduling.ask import A, B, C, Draws, ask, candidate, dispatcher
from tidegate.fleet.events import RequestEnded
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.pickers.least_tokens import Picker


def order(*endpoints: object, prompt: int = 100) -> list[str]:
    ranked = Picker().rank(ask(prompt=prompt), endpoints, Draws([0.4, 0.9, 0.1]))  # type: ignore[arg-type]
    return [endpoint.address for endpoint in ranked]


def test_the_fewest_tokens_come_first_and_the_most_last() -> None:
    assert order(candidate(A, tokens=500), candidate(B, tokens=90_000), candidate(C, tokens=20)) == [C, A, B]


def test_many_small_requests_weigh_less_than_one_long_prompt() -> None:
    many_small = candidate(A, requests=50, tokens=50 * 60)
    one_long = candidate(B, requests=1, tokens=100_000)
    assert order(one_long, many_small) == [A, B]


def test_twice_the_weight_bears_twice_the_tokens() -> None:
    assert order(candidate(A, tokens=1000), candidate(B, tokens=1800, weight=2), prompt=0) == [B, A]
    assert order(candidate(A, tokens=1000), candidate(B, tokens=2200, weight=2), prompt=0) == [A, B]


def test_a_long_prompt_counts_against_the_weights() -> None:
    small, large = candidate(A, tokens=0), candidate(B, tokens=3000, weight=10)
    assert order(small, large, prompt=10) == [A, B]
    assert order(small, large, prompt=100_000) == [B, A]


def test_with_equal_tokens_the_fewer_requests_come_first() -> None:
    assert order(candidate(A, tokens=0, requests=3), candidate(B, tokens=0, requests=1)) == [B, A]


def test_equals_are_drawn_by_lot() -> None:
    rng = random.Random(3)
    firsts = Counter(Picker().rank(ask(), [candidate(A), candidate(B)], rng)[0].address for _ in range(400))
    assert firsts[A] == pytest.approx(200, abs=50)


def test_a_long_prompt_keeps_the_next_small_ones_away() -> None:
    _, decides = dispatcher("least_tokens", A, B, rng=random.Random(1))
    long = decides.decide(ask("long", prompt=100_000), 0.0)
    assert isinstance(long, Decision)
    picks = [decides.decide(ask(f"hello{number}", prompt=8), 0.0) for number in range(100)]
    assert all(isinstance(pick, Decision) and pick.addresses[0] != long.addresses[0] for pick in picks)


def test_what_ended_no_longer_weighs() -> None:
    fleet, decides = dispatcher("least_tokens", A, B, rng=random.Random(1))
    long = decides.decide(ask("long", prompt=100_000), 0.0)
    small = decides.decide(ask("small", prompt=8), 0.0)
    assert isinstance(long, Decision)
    assert isinstance(small, Decision)
    fleet.apply(RequestEnded("long", 10), 1.0)
    after = decides.decide(ask("next", prompt=8), 1.0)
    assert isinstance(after, Decision)
    assert after.addresses[0] == long.addresses[0] != small.addresses[0]


def test_over_many_requests_shares_follow_the_weights() -> None:
    _, decides = dispatcher("least_tokens", A, B, C, rng=random.Random(1), weights={B: 2, C: 3})
    picks = [decides.decide(ask(str(number)), 0.0) for number in range(600)]
    shares = Counter(pick.addresses[0] for pick in picks if isinstance(pick, Decision))
    assert [shares[address] for address in (A, B, C)] == pytest.approx([100, 200, 300], abs=4)
