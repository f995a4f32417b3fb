"""Splits: one route's requests shared out between pools, in proportion to weights.

Without a key the shares are exact, not merely likely: the fractional parts of multiples of the golden ratio fall into
every interval in proportion to its length, as evenly as any sequence can (Kuipers and Niederreiter, Uniform
Distribution of Sequences, 1974; the difference from the share is below one request in a hundred from 100 requests on).
With a key, a user's for example, the same one always goes the same way; when weights change, only as many keys move as
have to (weighted rendezvous hashing), so a canary that grows keeps those whom it has.
"""

import itertools
from bisect import bisect_right
from typing import NamedTuple

from tidegate.scheduling.rendezvous import draw

_GOLDEN = 0.6180339887498949


class Side(NamedTuple):
    """One of the pools.

    Attributes:
        pool: its name.
        weight: its share, in proportion to the others'; 0 for nothing.
        rewrite_model: the name by which its engines are asked for the model; empty for the route's own.
    """

    pool: str
    weight: float
    rewrite_model: str = ""

    @property
    def address(self) -> str:
        """What it is known by where keys are shared out."""
        return self.pool


class Split(NamedTuple):
    """How a route's requests are shared out.

    Attributes:
        sides: the pools, at least one with a weight.
        sticky: by what a request stays where it was: ``session``, ``tenant``, or a header's name in lower case with a
            colon before it; empty when it does not.
    """

    sides: tuple[Side, ...]
    sticky: str = ""

    @property
    def largest(self) -> Side:
        """The side with the largest weight, the first of several."""
        return max(self.sides, key=lambda side: side.weight)


class Sharing:
    """Shares out the requests of one split."""

    __slots__ = ("_bounds", "_point", "_sides", "_total")

    def __init__(self, split: Split) -> None:
        """Begin to share out.

        Raises:
            ValueError: no side has a weight, or one has a negative weight.
        """
        if any(side.weight < 0 for side in split.sides) or not any(side.weight for side in split.sides):
            raise ValueError("expected weights of 0 or more, and at least one above 0")
        self._sides = tuple(side for side in split.sides if side.weight > 0)
        self._bounds = tuple(itertools.accumulate(side.weight for side in self._sides))
        self._total = self._bounds[-1]
        self._point = 0.5

    def side(self, key: str = "") -> Side:
        """Return where the next request goes; always to the same side where it has a ``key``."""
        if len(self._sides) == 1:
            return self._sides[0]
        if key:
            return max(self._sides, key=draw(key))
        self._point = (self._point + _GOLDEN) % 1.0
        at = bisect_right(self._bounds, self._point * self._total)
        return self._sides[min(at, len(self._sides) - 1)]
