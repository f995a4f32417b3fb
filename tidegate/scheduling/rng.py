"""Randomness, as an argument."""

from collections.abc import Iterable
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
