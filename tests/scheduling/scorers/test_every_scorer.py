"""What holds for every scorer, and each one's formula."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.ask import A, B, C, D, ask, candidate, candidates
from tidegate.fleet.view import Adapters, EndpointView
from tidegate.scheduling import scorers
from tidegate.scheduling.request import InferenceRequest


def score(name: str, *endpoints: EndpointView, request: InferenceRequest | None = None) -> list[float]:
    return scorers.find(name)(request or ask(), endpoints)


@pytest.mark.parametrize("name", ["", "best", "__init__", "../pickers"])
def test_a_scorer_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(KeyError):
        scorers.find(name)


@pytest.mark.parametrize("name", scorers.names())
@settings(max_examples=40, deadline=None)
@given(offered=candidates(), prompt=st.integers(0, 10**7), session=st.text(max_size=3), adapter=st.sampled_from("a "))
def test_scores_are_from_nought_to_one_and_in_the_order_of_the_candidates(
    name: str, offered: list[EndpointView], prompt: int, session: str, adapter: str
) -> None:
    request = ask(prompt=prompt, session=session, adapter=adapter.strip())
    scores = scorers.find(name)(request, offered)
    assert len(scores) == len(offered)
    assert all(0.0 <= each <= 1.0 for each in scores)
    assert scorers.find(name)(request, offered[::-1]) == pytest.approx(scores[::-1])


def test_the_shortest_queue_scores_one_and_the_longest_nought() -> None:
    assert score("queue", *(candidate(A, waiting=each) for each in (2, 6, 10))) == [1.0, 0.5, 0.0]


def test_equal_queues_all_score_one() -> None:
    assert score("queue", candidate(A, waiting=7), candidate(B, waiting=7)) == [1.0, 1.0]


def test_a_queue_that_is_not_known_is_an_average_one() -> None:
    assert score("queue", candidate(A, waiting=2), candidate(B), candidate(C, waiting=10)) == [1.0, 0.5, 0.0]
    assert score("queue", candidate(A), candidate(B)) == [0.5, 0.5]


def test_the_smallest_batch_scores_one() -> None:
    assert score("running", *(candidate(A, running=each) for each in (8, 0, 4))) == [0.0, 1.0, 0.5]


def test_a_free_cache_scores_one() -> None:
    assert score("kv_usage", candidate(A, kv_usage=0.25), candidate(B, kv_usage=1.0)) == [0.75, 0.0]
    assert score("kv_usage", candidate(A, kv_usage=0.25), candidate(B)) == [0.75, 0.75]


def test_the_cached_share_of_the_prompt_is_the_score() -> None:
    offered = (candidate(A, cached=50), candidate(B), candidate(C, cached=400))
    assert score("prefix", *offered, request=ask(prompt=200)) == [0.25, 0.0, 1.0]


@pytest.mark.parametrize(
    ("adapters", "expected"),
    # Cases of the Go endpoint picker's own test.
    [
        (Adapters(frozenset("t"), frozenset(), 2.0), 1.0),
        (Adapters(frozenset("abcd"), frozenset("t"), 5.0), 0.6),
        (Adapters(frozenset("a"), frozenset(), 2.0), 0.8),
        (Adapters(frozenset("a"), frozenset("t"), 2.0), 0.6),
        (Adapters(frozenset("ab"), frozenset(), 2.0), 0.0),
        (None, 0.5),
    ],
)
def test_an_adapter_at_hand_scores_high(adapters: Adapters | None, expected: float) -> None:
    assert score("lora_affinity", candidate(A, adapters=adapters), request=ask(adapter="t")) == [expected]


def test_without_an_adapter_all_are_alike() -> None:
    assert score("lora_affinity", candidate(A), candidate(B, adapters=Adapters(frozenset(), frozenset(), 1.0))) == [
        1,
        1,
    ]


def test_a_queue_by_a_fixed_measure() -> None:
    assert score("load_aware", *(candidate(A, waiting=each) for each in (0, 64, 128, 500))) == [0.5, 0.25, 0.0, 0.0]


def test_requests_for_the_weight() -> None:
    offered = (candidate(A, requests=4), candidate(B, requests=4, weight=4), candidate(C, requests=10, weight=4))
    assert score("active_requests", *offered) == [0.0, 1.0, 0.5]


def test_tokens_by_a_fixed_measure() -> None:
    offered = (candidate(A), candidate(B, tokens=2_097_152), candidate(C, cached=4_194_304), candidate(D, tokens=1e9))
    assert score("token_load", *offered, request=ask(prompt=0)) == [1.0, 0.5, 1.0, 0.0]
    assert score("token_load", *offered, request=ask(prompt=4_194_304)) == [0.0, 0.0, 1.0, 0.0]


def test_a_sessions_home_scores_one() -> None:
    offered = [candidate(address) for address in (A, B, C, D)]
    one = score("session", *offered, request=ask(session="s"))
    assert sorted(one) == [0.0, 0.0, 0.0, 1.0]
    assert score("session", *offered) == [0.5] * 4
