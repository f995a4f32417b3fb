"""The shuffle: every order, each as likely; and the order of values, equals shuffled."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduling.ask import Draws, draws
from tidegate.scheduling.rng import ascending, shuffled

LARGEST = 1.0 - 2.0**-53  # the largest number below one


@given(st.lists(st.integers()), draws())
def test_a_shuffle_keeps_every_item_whatever_is_drawn(items: list[int], rng: Draws) -> None:
    assert Counter(shuffled(items, rng)) == Counter(items)


@given(st.integers(0, 3000))
def test_the_largest_draw_stays_within_the_items(count: int) -> None:
    assert shuffled(range(count), Draws([LARGEST])) == list(range(count))


def test_every_order_is_as_likely() -> None:
    rng = random.Random(7)
    orders = Counter("".join(shuffled("abc", rng)) for _ in range(6000))
    assert len(orders) == 6
    assert all(count == pytest.approx(1000, abs=120) for count in orders.values())


def test_a_shuffle_leaves_its_argument_alone() -> None:
    items = [1, 2, 3]
    shuffled(items, Draws([0.0]))
    assert items == [1, 2, 3]


@given(st.lists(st.integers(0, 5).map(float)), draws())
def test_values_are_put_in_order_whatever_is_drawn(values: list[float], rng: Draws) -> None:
    order = ascending(values, rng)
    assert sorted(order) == list(range(len(values)))
    assert [values[place] for place in order] == sorted(values)


def test_equal_values_alone_are_shuffled_and_every_order_of_them_is_as_likely() -> None:
    rng = random.Random(7)
    orders = Counter(tuple(ascending([2.0, 1.0, 2.0, 3.0, 2.0], rng)) for _ in range(6000))
    assert {(order[0], order[-1]) for order in orders} == {(1, 3)}
    assert len(orders) == 6
    assert all(count == pytest.approx(1000, abs=120) for count in orders.values())


def test_where_no_two_are_equal_nothing_is_drawn() -> None:
    assert ascending([3.0, 1.0, 2.0], Draws([])) == [1, 2, 0]
