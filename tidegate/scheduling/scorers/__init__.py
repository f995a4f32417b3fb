"""How good an endpoint is in one respect: one file each, whose name is the configuration key.

A scorer's file defines ``score(request, candidates)``, which returns a number from 0 to 1 for each candidate, in their
order; 1 is best. Where an endpoint does not say what a scorer asks for, it is taken for average among those that do,
and for 0.5 where nobody does: unknown is neither idle nor full.
"""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol, cast

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest

NEUTRAL = 0.5


class Score(Protocol):
    """The function of a scorer. Nothing is changed by it, and ``candidates`` is never empty."""

    def __call__(self, request: InferenceRequest, candidates: Sequence[EndpointView]) -> list[float]:
        """Return how good each candidate is for ``request``, 0 to 1, in their order."""
        ...


@cache
def names() -> tuple[str, ...]:
    """Return the names of all scorers, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@cache
def find(name: str) -> Score:
    """Return the scorer ``name``.

    Raises:
        KeyError: there is no such scorer.
    """
    if name not in names():
        raise KeyError(name)
    return cast("Score", importlib.import_module(f"{__name__}.{name}").score)


def fewest_first(figures: Sequence[float | None]) -> list[float]:
    """Return (most - figure) / (most - fewest) for each; 1 for all where they are equal."""
    known = [figure for figure in figures if figure is not None]
    if not known:
        return [NEUTRAL] * len(figures)
    fewest, most = min(known), max(known)
    spread = most - fewest
    return averaged(figures, lambda figure: (most - figure) / spread if spread > 0 else 1.0)


def averaged(figures: Sequence[float | None], score: Callable[[float], float]) -> list[float]:
    """Return the score of each figure, and the mean of the scores for one that is not known."""
    scores = [None if figure is None else score(figure) for figure in figures]
    known = [each for each in scores if each is not None]
    mean = sum(known) / len(known) if known else NEUTRAL
    return [mean if each is None else each for each in scores]
