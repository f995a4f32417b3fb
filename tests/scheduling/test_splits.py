"""Requests of one route between several pools: exact shares, and keys that stay."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.scheduling.splits import Sharing, Side, Split

CANARY = Split((Side("canary", 10), Side("stable", 90)))


def counted(split: Split, requests: int) -> Counter[str]:
    sharing = Sharing(split)
    return Counter(sharing.side().pool for _ in range(requests))


def test_ten_thousand_requests_are_shared_out_within_a_hundredth() -> None:
    found = counted(CANARY, 10_000)
    assert abs(found["canary"] - 1_000) <= 10
    assert found.total() == 10_000


@given(st.lists(st.integers(0, 100), min_size=1, max_size=8).filter(any), st.integers(100, 3_000))
def test_no_share_is_off_by_more_than_a_hundredth_and_ten_requests(weights: list[int], requests: int) -> None:
    split = Split(tuple(Side(f"p{at}", weight) for at, weight in enumerate(weights)))
    found = counted(split, requests)
    for side in split.sides:
        assert abs(found[side.pool] - requests * side.weight / sum(weights)) <= 10 + requests / 100


def test_shares_are_even_over_any_hundred_requests_and_not_in_blocks() -> None:
    sharing = Sharing(CANARY)
    taken = [sharing.side().pool == "canary" for _ in range(1_000)]
    assert all(7 <= sum(taken[start : start + 100]) <= 13 for start in range(900))


def test_a_side_without_weight_gets_nothing() -> None:
    split = Split((Side("a", 0), Side("b", 1)))
    assert counted(split, 100) == {"b": 100}
    assert {Sharing(split).side(f"user-{number}").pool for number in range(100)} == {"b"}


def test_a_key_stays_on_its_side_whoever_asks() -> None:
    for number in range(100):
        one, other = Sharing(CANARY), Sharing(CANARY)
        other.side()
        assert {one.side(f"user-{number}"), one.side(f"user-{number}")} == {other.side(f"user-{number}")}


def test_keys_are_shared_out_in_proportion() -> None:
    sharing = Sharing(CANARY)
    found = Counter(sharing.side(f"user-{number}").pool for number in range(20_000))
    assert abs(found["canary"] - 2_000) <= 200


@given(st.floats(0.01, 0.5), st.floats(0.5, 0.99))
def test_a_canary_that_grows_keeps_those_whom_it_has(small: float, large: float) -> None:
    before, after = (Sharing(Split((Side("canary", share), Side("stable", 1 - share)))) for share in (small, large))
    keys = [f"user-{number}" for number in range(200)]
    kept = {key for key in keys if before.side(key).pool == "canary"}
    assert kept <= {key for key in keys if after.side(key).pool == "canary"}


@pytest.mark.parametrize("weights", [(), (0,), (0, 0), (1, -1)])
def test_weights_that_share_nothing_out_are_refused(weights: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least one above 0"):
        Sharing(Split(tuple(Side(f"p{at}", weight) for at, weight in enumerate(weights))))


def test_the_largest_side_is_the_first_of_several() -> None:
    assert Split((Side("a", 1), Side("b", 5), Side("c", 5))).largest.pool == "b"
