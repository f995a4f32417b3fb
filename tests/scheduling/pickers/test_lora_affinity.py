"""The policy ``lora_affinity``."""

import random
from collections import Counter

from tests.scheduling.ask import A, B, C, Draws, ask, candidate, configured
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.view import Adapters, EndpointView
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.pickers.lora_affinity import UNNAMED, Picker
from tidegate.scheduling.policy import Policy


def there(*running: str, most: float | None = 2.0) -> Adapters:
    return Adapters(frozenset(running), frozenset(), most)


def order(*endpoints: EndpointView, adapter: str = "a", picker: Picker | None = None) -> list[str]:
    ranked = (picker or Picker()).rank(ask(adapter=adapter), endpoints, Draws([0.5]))
    return [endpoint.address for endpoint in ranked]


def test_whoever_has_the_adapter_wins_then_whoever_has_room() -> None:
    full, room, has = there("b", "c"), there("b"), there("a", "b")
    offered = (candidate(A, adapters=full), candidate(B, adapters=room), candidate(C, adapters=has, tokens=1000))
    assert order(*offered) == [C, B, A]


def test_among_equals_the_fewest_tokens_win() -> None:
    offered = (candidate(A, adapters=there("a"), tokens=9), candidate(B, adapters=there("a"), tokens=4))
    assert order(*offered) == [B, A]


def test_without_an_adapter_the_fewest_tokens_win() -> None:
    offered = (candidate(A, adapters=there("a"), tokens=9), candidate(B, tokens=4))
    assert order(*offered, adapter="") == [B, A]


def test_an_adapter_counts_as_loaded_where_it_was_sent() -> None:
    picker = Picker()
    home = order(candidate(A), candidate(B), picker=picker)[0]
    other = B if home == A else A
    assert order(candidate(home, tokens=1000), candidate(other), picker=picker)[0] == home
    assert picker.explain(ask(adapter="a"), [candidate(home), candidate(other)]) == {
        home: {"affinity": 1.0},
        other: {"affinity": 0.5},
    }


def test_where_many_others_were_sent_since_it_does_not() -> None:
    picker = Picker()
    for adapter in ("a", *(f"x{number}" for number in range(UNNAMED))):
        order(candidate(A), adapter=adapter, picker=picker)
    assert picker.explain(ask(adapter="a"), [candidate(A)]) == {A: {"affinity": 0.5}}
    assert picker.explain(ask(adapter="x1"), [candidate(A)]) == {A: {"affinity": 1.0}}


def test_each_adapter_of_a_pool_settles_somewhere() -> None:
    members = (EndpointSpec(A), EndpointSpec(B), EndpointSpec(C))
    pool = PoolSpec("default", "vllm", ("base",), members, adapters=("lora-*",))
    _, decides = configured(pool, rng=random.Random(1), policy=Policy("lora_affinity"))
    homes: dict[str, set[str]] = {}
    for number in range(90):
        model = f"lora-{number % 6}"
        decision = decides.decide(ask(str(number), model=model), 0.0)
        assert isinstance(decision, Decision)
        homes.setdefault(model, set()).add(decision.addresses[0])
    assert all(len(settled) == 1 for settled in homes.values())
    assert set(Counter(next(iter(settled)) for settled in homes.values()).values()) == {2}
