"""The policy ``round_robin``."""

from tests.scheduling.ask import A, B, C, D, Draws, ask, candidate
from tidegate.scheduling.pickers.round_robin import Picker

RNG = Draws([0.5])


def order(picker: Picker, *addresses: str) -> list[str]:
    return [endpoint.address for endpoint in picker.rank(ask(), [candidate(address) for address in addresses], RNG)]


def test_one_follows_the_other_and_then_the_first_again() -> None:
    picker = Picker()
    assert [order(picker, A, B, C)[0] for _ in range(7)] == [A, B, C, A, B, C, A]


def test_fallbacks_are_those_that_come_next() -> None:
    picker = Picker()
    order(picker, A, B, C)
    assert order(picker, A, B, C) == [B, C, A]


def test_the_order_of_the_candidates_does_not_matter() -> None:
    picker = Picker()
    assert [order(picker, C, A, B)[0], order(picker, B, C, A)[0], order(picker, A, C, B)[0]] == [A, B, C]


def test_weights_and_load_do_not_count() -> None:
    picker = Picker()
    busy = [candidate(A, weight=9), candidate(B, requests=99, tokens=1e6)]
    assert [picker.rank(ask(), busy, RNG)[0].address for _ in range(4)] == [A, B, A, B]


def test_a_member_that_goes_does_not_make_another_be_passed_over() -> None:
    picker = Picker()
    assert order(picker, A, B, C, D)[0] == A
    assert order(picker, A, C, D)[0] == C
    assert order(picker, A, C, D)[0] == D


def test_the_round_goes_on_when_the_one_named_last_is_gone() -> None:
    picker = Picker()
    order(picker, A, B, C)
    assert order(picker, A, B, C)[0] == B
    assert order(picker, A, C)[0] == C


def test_a_new_member_gets_its_turn() -> None:
    picker = Picker()
    order(picker, A, C)
    assert order(picker, A, B, C)[0] == B


def test_a_single_endpoint_is_named_every_time() -> None:
    picker = Picker()
    assert [order(picker, B) for _ in range(3)] == [[B], [B], [B]]
