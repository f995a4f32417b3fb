"""The filter ``adapter``: a request for an adapter goes where that is, or where there is room for it."""

from tests.scheduling.ask import A, B, C, D, ask, candidate
from tidegate.fleet.view import Adapters
from tidegate.scheduling.filters import adapter


def there(*running: str, waiting: tuple[str, ...] = (), most: float | None = 2.0) -> Adapters:
    return Adapters(frozenset(running), frozenset(waiting), most)


def kept(*adapters: Adapters | None, wanted: str = "a") -> list[str]:
    offered = [candidate(address, adapters=each) for address, each in zip((A, B, C, D), adapters, strict=False)]
    return [endpoint.address for endpoint in adapter.keep(ask(adapter=wanted), offered)]


def test_an_endpoint_that_is_full_of_others_is_left_out() -> None:
    assert kept(there("a", "b"), there("b", "c"), there("b"), there("b", waiting=("c",))) == [A, C]


def test_whoever_waits_for_the_same_adapter_waits_along() -> None:
    assert kept(there("b", waiting=("a",)), there("b", "c", waiting=("a",))) == [A]


def test_what_is_not_said_is_no_reason() -> None:
    assert kept(None, there("b", "c", most=None)) == [A, B]


def test_without_an_adapter_all_are_kept() -> None:
    assert kept(there("b", "c"), None, wanted="") == [A, B]
