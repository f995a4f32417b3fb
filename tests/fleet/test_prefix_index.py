"""The prefix index: who holds how much of a prompt's beginning, without a gap, in bounded memory."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.declare import A, B, C
from tidegate.fleet.prefix_index import DEFAULT_CAPACITY_TOKENS, PrefixIndex

D = "10.0.0.4:8000"
ALL = (A, B, C, D)


def index(*addresses: str, most: int = 1000) -> PrefixIndex:
    made = PrefixIndex()
    made.admit(addresses or ALL, most)
    return made


def test_nobody_holds_anything_at_first() -> None:
    match = index().match((1, 2, 3))
    assert match.groups == ()
    assert match.blocks(A) == 0
    assert list(match.best(3)) == []


def test_a_prompt_without_blocks_matches_nobody() -> None:
    made = index()
    made.hold(A, (1,), 16)
    assert made.match(()).blocks(A) == 0


def test_what_was_sent_somewhere_is_held_there() -> None:
    made = index()
    made.hold(A, (1, 2, 3), 16)
    made.hold(B, (1, 2, 9), 16)
    match = made.match((1, 2, 3, 4))
    assert [match.blocks(address) for address in ALL] == [3, 2, 0, 0]
    assert list(match.best(5)) == [A, B]


def test_a_match_ends_at_the_first_gap() -> None:
    made = index()
    made.hold(A, (1, 2, 3, 4), 16)
    made.drop(A, (2,))
    assert made.match((1, 2, 3, 4)).blocks(A) == 1
    made.drop(A, (1,))
    assert made.match((1, 2, 3, 4)).blocks(A) == 0
    assert made.match((3, 4)).blocks(A) == 2


def test_the_cache_bounds_what_is_held_and_the_tail_goes_first() -> None:
    made = index()
    made.resize(A, 64)
    made.hold(A, (1, 2, 3), 16)
    made.hold(A, (11, 12), 16)
    assert len(made) == 4
    assert made.match((1, 2, 3)).blocks(A) == 2
    assert made.match((11, 12)).blocks(A) == 2


def test_of_a_prompt_longer_than_the_cache_the_beginning_is_held() -> None:
    made = index()
    made.resize(A, 50)
    made.hold(A, tuple(range(10)), 16)
    assert made.match(tuple(range(10))).blocks(A) == 3


def test_what_is_used_again_stays() -> None:
    made = index()
    made.resize(A, 64)
    for tail in range(100, 120):
        made.hold(A, (1, 2, tail), 16)
    assert made.match((1, 2)).blocks(A) == 2
    assert len(made) == 4


def test_the_share_of_the_memory_bounds_it_as_well() -> None:
    made = index(most=5)
    made.hold(A, tuple(range(20)), 16)
    assert len(made) == 5
    made.admit(ALL, 2)
    assert len(made) == 2


def test_an_engine_that_does_not_say_has_an_ordinary_cache() -> None:
    made = index()
    made.hold(A, (1, 2, 3), DEFAULT_CAPACITY_TOKENS // 2)
    assert made.match((1, 2, 3)).blocks(A) == 2
    made.resize(A, 10.0)
    made.resize(A, None)
    made.hold(A, (1, 2, 3), DEFAULT_CAPACITY_TOKENS // 2)
    assert made.match((1, 2, 3)).blocks(A) == 2


def test_a_restarted_engine_holds_nothing() -> None:
    made = index()
    made.hold(A, (1, 2), 16)
    made.hold(B, (1,), 16)
    made.forget(A)
    assert [made.match((1, 2)).blocks(address) for address in (A, B)] == [0, 1]


def test_an_endpoint_that_left_is_not_named_and_its_place_is_empty_for_the_next() -> None:
    made = index(A, B)
    made.resize(A, 16)
    made.hold(A, (1,), 16)
    made.hold(B, (1,), 16)
    made.admit((B, C), 1000)
    match = made.match((1, 2))
    assert list(match.best(5)) == [B]
    assert match.blocks(A) == match.blocks(C) == 0
    made.hold(C, (1, 2), 16)
    assert made.match((1, 2)).blocks(C) == 2


def test_endpoints_that_are_not_there_change_nothing() -> None:
    made = index(A)
    made.hold(B, (1,), 16)
    made.drop(B, (1,))
    made.forget(B)
    made.resize(B, 5.0)
    assert len(made) == 0
    assert list(made.held(B)) == []


def test_among_equals_not_always_the_same_are_named() -> None:
    made = index()
    for address in ALL:
        made.hold(address, (1,), 16)
    match = made.match((1,))
    assert [next(match.best(1, turn)) for turn in (0.0, 0.25, 0.5, 0.99)] == [A, B, C, D]
    assert set(match.best(9, 0.6)) == set(ALL)


CHAINS = st.lists(st.integers(0, 5), max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.sampled_from(ALL), CHAINS),
        st.tuples(st.just("drop"), st.sampled_from(ALL), CHAINS),
        st.tuples(st.just("forget"), st.sampled_from(ALL), CHAINS),
        st.tuples(st.just("admit"), st.sampled_from(ALL), CHAINS),
    ),
    max_size=40,
)


def chained(parts: list[int]) -> tuple[int, ...]:
    """Return numbers of which each stands for its part and all before it."""
    numbers, number = [], 7
    for part in parts:
        number = hash((number, part))
        numbers.append(number)
    return tuple(numbers)


def plainly(made: PrefixIndex, address: str, hashes: tuple[int, ...]) -> int:
    held = set(made.held(address))
    return next((at for at, number in enumerate(hashes) if number not in held), len(hashes))


@settings(max_examples=200, deadline=None)
@given(STEPS, CHAINS, st.integers(0, 8), st.integers(1, 6))
def test_it_finds_what_a_plain_search_finds_and_stays_within_its_bounds(
    steps: list[tuple[str, str, list[int]]], asked: list[int], capacity: int, most: int
) -> None:
    made = index(most=most)
    made.resize(A, capacity * 16.0)
    here = set(ALL)
    for what, address, parts in steps:
        if what == "hold":
            made.hold(address, chained(parts), 16)
        elif what == "drop":
            made.drop(address, chained(parts))
        elif what == "forget":
            made.forget(address)
        else:
            here ^= {address}
            made.admit(here, most)
    hashes = chained(asked)
    match = made.match(hashes)
    assert {address: match.blocks(address) for address in ALL} == {
        address: plainly(made, address, hashes) for address in ALL
    }
    best = list(match.best(len(ALL), 0.4))
    assert set(best) == {address for address in ALL if match.blocks(address)}
    assert all(match.blocks(one) >= match.blocks(other) for one, other in pairwise(best))
    assert all(len(list(made.held(address))) <= most for address in ALL)
    assert len(made) == sum(len(list(made.held(address))) for address in ALL)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ALL), CHAINS), max_size=40), st.integers(1, 8))
def test_without_removals_no_beginning_loses_its_head(holds: list[tuple[str, list[int]]], most: int) -> None:
    made = index(most=most)
    seen: dict[int, int] = {}
    for address, parts in holds:
        hashes = chained(parts)
        seen.update({after: before for before, after in pairwise(hashes)})
        made.hold(address, hashes, 16)
    for address in ALL:
        held = set(made.held(address))
        assert all(seen[number] in held for number in held if number in seen)


@pytest.mark.parametrize("holders", [1, 2, 4])
def test_a_block_that_nobody_holds_any_more_takes_no_memory(holders: int) -> None:
    made = index()
    for address in ALL[:holders]:
        made.hold(address, (1, 2, 3), 16)
    for address in ALL[:holders]:
        made.forget(address)
    assert len(made) == 0
    assert made.match((1, 2, 3)).groups == ()
    assert made._holders == {}
