"""The shuffle: every order, each as likely."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduling.ask import Draws, draws
from tidegate.scheduling.rng import shuffled

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
