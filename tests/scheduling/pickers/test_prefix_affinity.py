"""The policy ``prefix_affinity``."""

import random

from tests.scheduling.ask import A, B, C, ask, candidate, dispatcher
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.pickers.prefix_affinity import Picker


def order(*endpoints: EndpointView, prompt: int = 1000) -> list[str]:
    return [endpoint.address for endpoint in Picker().rank(ask(prompt=prompt), endpoints, random.Random(1))]


def test_the_most_cached_tokens_win() -> None:
    assert order(candidate(A, tokens=0), candidate(B, tokens=900, cached=512), candidate(C, cached=256)) == [B, C, A]


def test_an_overloaded_one_comes_last_whatever_it_has_cached() -> None:
    warm = candidate(A, requests=12, cached=1000)
    assert order(warm, candidate(B, requests=2), candidate(C, requests=3))[-1] == A


def test_in_a_nearly_idle_pool_nobody_is_overloaded() -> None:
    assert order(candidate(A, requests=2, cached=100), candidate(B)) == [A, B]


def test_a_prompt_that_nobody_knows_goes_to_the_fewest_tokens() -> None:
    assert order(candidate(A, tokens=500), candidate(B, tokens=100), candidate(C, tokens=300)) == [B, C, A]


def test_a_conversation_stays_where_it_began() -> None:
    _, decides = dispatcher("prefix_affinity", A, B, C, rng=random.Random(3))
    turns = [decides.decide(ask(str(n), prompt=16 * (n + 2), prefix=tuple(range(n + 1))), 0.0) for n in range(4)]
    assert all(isinstance(turn, Decision) for turn in turns)
    assert len({turn.addresses[0] for turn in turns if isinstance(turn, Decision)}) == 1


def test_conversations_with_nothing_in_common_spread() -> None:
    _, decides = dispatcher("prefix_affinity", A, B, C, rng=random.Random(3))
    firsts = [decides.decide(ask(str(n), prompt=160, prefix=(100 + n,)), 0.0) for n in range(3)]
    assert {first.addresses[0] for first in firsts if isinstance(first, Decision)} == {A, B, C}


def test_what_it_rests_on_is_said() -> None:
    figures = Picker().explain(ask(), [candidate(A, requests=6, weight=2, cached=32), candidate(B, requests=3)])
    expected = {"cached_tokens": 32.0, "requests_per_weight": 3.0, "most_requests_per_weight": 1.25 * 3 + 2}
    assert figures[A] == expected
