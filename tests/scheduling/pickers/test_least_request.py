"""The policy ``least_request``."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduling.ask import A, B, C, D, Draws, ask, candidate, dispatcher, draws
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.pickers.least_request import MOST_TURNS, Picker


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


def test_equals_take_turns() -> None:
    picker, rng = Picker(), random.Random(3)
    firsts = [picker.rank(ask(), [candidate(A), candidate(B), candidate(C)], rng)[0].address for _ in range(9)]
    assert firsts[:3] == firsts[3:6] == firsts[6:]
    assert set(firsts) == {A, B, C}


def test_turns_do_not_weigh_against_requests() -> None:
    picker, rng = Picker(), random.Random(3)
    picks = [picker.rank(ask(), [candidate(A, requests=5), candidate(B)], rng)[0].address for _ in range(5)]
    assert picks == [B] * 5


@given(draws(), st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40)), max_size=80))
def test_a_burst_through_two_who_hear_of_each_other_late_spreads_evenly(
    rng: Draws, schedule: list[tuple[int, int]]
) -> None:
    """Each entry is a request: who decides, and how much of the other's news both take in first."""
    addresses = (A, B, C, D)
    pickers, known, sums = (Picker(), Picker()), ([0] * 4, [0] * 4), [0] * 4
    unheard: tuple[list[int], list[int]] = ([], [])
    for who, heard in schedule:
        for one in (0, 1):
            for place in unheard[one][:heard]:
                known[one][place] += 1
            del unheard[one][:heard]
        seen = [candidate(address, requests=known[who][place]) for place, address in enumerate(addresses)]
        place = addresses.index(pickers[who].rank(ask(), seen, rng)[0].address)
        known[who][place] += 1
        sums[place] += 1
        unheard[1 - who].append(place)
    assert max(sums) - min(sums) <= 2


def test_what_is_remembered_of_turns_is_bounded() -> None:
    picker = Picker()
    for number in range(MOST_TURNS + 2):
        picker.rank(ask(), [candidate(f"a{number}")], Draws([0.5]))
    assert len(picker._picked) <= MOST_TURNS // 2 + 1
    assert picker.rank(ask(), [candidate(f"a{MOST_TURNS}"), candidate("a1")], Draws([0.5]))[0].address == "a1"


def test_over_many_requests_shares_follow_the_weights() -> None:
    _, decides = dispatcher("least_request", A, B, C, rng=random.Random(1), weights={B: 2, C: 3})
    picks = [decides.decide(ask(str(number)), 0.0) for number in range(600)]
    shares = Counter(pick.addresses[0] for pick in picks if isinstance(pick, Decision))
    assert [shares[address] for address in (A, B, C)] == pytest.approx([100, 200, 300], abs=3)
