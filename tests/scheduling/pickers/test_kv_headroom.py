"""The policy ``kv_headroom``."""

import random

from tests.scheduling.ask import A, B, C, ask, candidate
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.pickers.kv_headroom import Picker


def order(*endpoints: EndpointView) -> list[str]:
    return [endpoint.address for endpoint in Picker().rank(ask(), endpoints, random.Random(1))]


def test_the_most_free_tokens_win_not_the_smallest_share() -> None:
    large = candidate(A, kv_usage=0.5, kv_capacity=100_000.0)
    small = candidate(B, kv_usage=0.1, kv_capacity=40_000.0)
    assert order(small, large) == [A, B]


def test_what_was_sent_since_the_report_takes_room() -> None:
    one = candidate(A, kv_usage=0.1, kv_capacity=10_000.0, tokens=8_000)
    other = candidate(B, kv_usage=0.5, kv_capacity=10_000.0)
    assert order(one, other) == [B, A]


def test_what_is_cached_of_the_prompt_needs_no_room() -> None:
    one = candidate(A, kv_usage=0.5, kv_capacity=1_000.0, cached=200)
    other = candidate(B, kv_usage=0.4, kv_capacity=1_000.0)
    assert order(other, one) == [A, B]


def test_a_cache_of_unknown_size_is_an_average_one() -> None:
    silent = candidate(A, tokens=100)
    roomy = candidate(B, kv_usage=0.0, kv_capacity=2_000.0)
    tight = candidate(C, kv_usage=0.9, kv_capacity=1_000.0)
    assert order(silent, tight, roomy) == [B, A, C]


def test_where_nobody_says_the_fewest_tokens_win() -> None:
    assert order(candidate(A, tokens=300), candidate(B, tokens=100), candidate(C, tokens=200)) == [B, C, A]


def test_the_room_is_said() -> None:
    figures = Picker().explain(ask(), [candidate(A, kv_usage=0.25, kv_capacity=1_000.0)])
    assert figures == {A: {"room_tokens": 750.0}}
