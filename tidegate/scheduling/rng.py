"""Randomness, as an argument."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Rng(Protocol):
    """The part of ``random.Random`` that decisions use."""

    def random(self) -> float:
        """Return a number in [0, 1), uniformly distributed."""
        ...


def shuffled(items: Iterable[T], rng: Rng) -> list[T]:
    """Return the items in an order drawn uniformly from all orders (Fisher and Yates)."""
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        order[last], order[other] = order[other], order[last]
    return order


def ascending(values: Sequence[float], rng: Rng) -> list[int]:
    """Return the places of ``values``, those of the smallest first, those of equals in an order drawn uniformly.

    Draws for equals alone, which is less than shuffling all of them first.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    before = None
    for first, place in enumerate(order):
        value = values[place]
        if value == before:
            return _equals_shuffled(order, values, first - 1, rng)
        before = value
    return order


def _equals_shuffled(order: list[int], values: Sequence[float], first: int, rng: Rng) -> list[int]:
    """Return ``order`` with its runs of equal ``values`` shuffled; there is none before ``first``."""
    result = order[:first]
    for _, equals in itertools.groupby(order[first:], values.__getitem__):
        result += shuffled(equals, rng)
    return result
