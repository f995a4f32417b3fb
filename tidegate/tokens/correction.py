"""What engines report of a prompt, held against what was counted before: the next count is corrected by it.

A vocabulary that is only near the model's own is off by a few percent in English and by half in other languages, and a
chat template may be another than the one expected. Both show as a ratio, which is about the same for all requests that
one model gets in one pool.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

SMALLEST: Final = 64
"""Counted tokens from which on a report teaches: in a smaller prompt the template's tokens outweigh the text's."""

FULL: Final = 1_024
"""Counted tokens from which on a report has its full weight; a smaller prompt's weighs in proportion, because the ratio
matters, in tokens, where prompts are long."""

RATE: Final = 0.05
"""About the share of a report of full weight in the average, once there were enough: it remembers the last 20."""

PLAUSIBLE: Final = 8.0
"""A report that differs by more than this factor is no count of the same prompt. Between vocabularies a factor of 3 is
seen (digits under Qwen 3), and 4 against one token per byte."""

STEP: Final = math.log(1.5)
"""How far from the average, as a logarithm, a report can be taken to be: an absurd one moves the average by 2 % at
most, where it would move a plain average of ratios by 35 %."""

_PRIOR: Final = 0.5
"""Weight of the assumption that counts are right, in reports of full weight."""


class Ratio(NamedTuple):
    """A correction: ``value`` times what was counted is what engines report."""

    pool: str
    model: str
    value: float


class Learned(NamedTuple):
    """All that was learned of one model in one pool, as plain data."""

    pool: str
    model: str
    logarithm: float
    weight: float


class _Average:
    """The average of the ratios' logarithms, so that twice and half cancel out."""

    __slots__ = ("logarithm", "weight")

    def __init__(self) -> None:
        self.logarithm = 0.0
        self.weight = 0.0

    def take(self, logarithm: float, weight: float) -> None:
        """At first all reports have the same share, together with the prior; later the last ones have more."""
        self.weight = min(self.weight + weight, 1 / RATE)
        difference = min(STEP, max(-STEP, logarithm - self.logarithm))
        self.logarithm += difference * weight / (self.weight + _PRIOR)


class Corrections:
    """One ratio for each pool and model of which engines reported; the least recently reported ones are forgotten."""

    def __init__(self, models: int = 1_000) -> None:
        """Keep at most ``models`` ratios, 1 or more: clients may write names as they like where a pool serves ``*``."""
        self._models = models
        self._averages: OrderedDict[tuple[str, str], _Average] = OrderedDict()

    def learn(self, pool: str, model: str, counted: int, reported: int) -> bool:
        """Take in that an engine counted ``reported`` tokens where we had ``counted``, before correction.

        Returns:
            Whether it taught anything: a small prompt and an implausible report do not.
        """
        if counted < SMALLEST or not counted / PLAUSIBLE <= reported <= counted * PLAUSIBLE:
            return False
        key = (pool, model)
        average = self._averages.get(key)
        if average is None:
            average = self._averages[key] = _Average()
            if len(self._averages) > self._models:
                self._averages.popitem(last=False)
        self._averages.move_to_end(key)
        average.take(math.log(reported / counted), min(1.0, counted / FULL))
        return True

    def ratio(self, pool: str, model: str) -> float | None:
        """Return what counts for ``model`` in ``pool`` are to be multiplied by; ``None`` before the first report."""
        average = self._averages.get((pool, model))
        return None if average is None else math.exp(average.logarithm)

    def keep(self, pools: Iterable[str]) -> None:
        """Forget what was learned in other pools than ``pools``."""
        kept = set(pools)
        for key in [key for key in self._averages if key[0] not in kept]:
            del self._averages[key]

    def image(self) -> tuple[Learned, ...]:
        """Return all that was learned as plain data, in the order of ``__iter__``."""
        return tuple(Learned(*key, average.logarithm, average.weight) for key, average in self._averages.items())

    def restore(self, image: Iterable[Learned]) -> None:
        """Know what ``image`` says, and nothing else."""
        self._averages.clear()
        for pool, model, logarithm, weight in image:
            average = self._averages[pool, model] = _Average()
            average.logarithm, average.weight = logarithm, weight

    def __iter__(self) -> Iterator[Ratio]:
        """Iterate over the corrections, the least recently reported ones first."""
        for (pool, model), average in self._averages.items():
            yield Ratio(pool, model, math.exp(average.logarithm))

    def __len__(self) -> int:
        return len(self._averages)
