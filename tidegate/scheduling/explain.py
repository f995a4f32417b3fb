"""Why a request goes where it goes: every step of a decision, by the code that decides.

``explain`` works on a ``Case``, which is all that a decision rests on. A case can be written down and explained later;
only what a picker remembers from one request to the next is not in it.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.fleet.view import EndpointView
from tidegate.scheduling import filters, scorers
from tidegate.scheduling.filters import Filter, Step
from tidegate.scheduling.lanes import Lanes
from tidegate.scheduling.pickers import Explaining, Figures, PickerContract
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng


@dataclass(frozen=True, slots=True)
class Case:
    """What a decision rested on, and what it was.

    Attributes:
        request: with its pool and what its answer was expected to take.
        policy: how the pool's endpoints are chosen.
        members: how many endpoints the pool has.
        candidates: those that were looked at, before the filters.
        draws: the random numbers that the picker drew.
        addresses: the pick and its fallbacks; empty when nothing was decided.
        parts: the lane that each of the candidates is in, 0 for none; empty where the pool has no lanes.
    """

    request: InferenceRequest
    policy: Policy
    members: int
    candidates: tuple[EndpointView, ...]
    draws: tuple[float, ...] = ()
    addresses: tuple[str, ...] = ()
    parts: tuple[int, ...] = ()

    @property
    def filters(self) -> tuple[Filter, ...]:
        """What left out candidates, in order."""
        chosen = filters.chain(self.policy.filters)
        if not self.policy.lanes:
            return chosen
        known = {one.address: part for one, part in zip(self.candidates, self.parts, strict=False) if part}
        return (*chosen, Lanes(self.policy.lanes, known).filter)


class Explanation(NamedTuple):
    """What follows from a case.

    Attributes:
        case: the case.
        steps: what each filter did.
        scores: the scores of those that were left, by scorer and address.
        figures: what the picker's order rests on, by address, where it can say; a prediction with its parts, say.
        order: the addresses of those that were left, the best first; the second is the runner-up.
    """

    case: Case
    steps: tuple[Step, ...]
    scores: Mapping[str, Mapping[str, float]]
    figures: Figures
    order: tuple[str, ...]

    @property
    def pick(self) -> str | None:
        """The address that was picked, or that would be."""
        return next(iter(self.case.addresses or self.order), None)

    @property
    def runner_up(self) -> str | None:
        """The address that would be picked if the pick were not there."""
        return next((address for address in self.order if address != self.pick), None)


class Recorded:
    """A random source that remembers what it gave."""

    def __init__(self, rng: Rng) -> None:
        """Give what ``rng`` gives."""
        self._rng = rng
        self.draws: list[float] = []

    def random(self) -> float:
        """Return the next number."""
        number = self._rng.random()
        self.draws.append(number)
        return number


class Replayed:
    """A random source that gives what was drawn before, and then the middle of the range."""

    def __init__(self, draws: Sequence[float]) -> None:
        """Give ``draws`` in turn."""
        self._left: Iterator[float] = iter(draws)

    def random(self) -> float:
        """Return the next number."""
        return next(self._left, 0.5)


def explain(case: Case, picker: PickerContract) -> Explanation:
    """Return what follows from ``case`` with ``picker``, which stays as it is."""
    steps: list[Step] = []
    kept: Sequence[EndpointView] = ()
    if case.candidates:
        kept = filters.screen(case.request, case.candidates, case.filters, steps).kept
    if not kept:
        return Explanation(case, tuple(steps), {}, {}, ())
    addresses = [endpoint.address for endpoint in kept]
    scores = {
        name: dict(zip(addresses, scorers.find(name)(case.request, kept), strict=True)) for name in scorers.names()
    }
    picker = copy.deepcopy(picker)
    figures = picker.explain(case.request, kept) if isinstance(picker, Explaining) else {}
    order = picker.rank(case.request, kept, Replayed(case.draws))
    return Explanation(case, tuple(steps), scores, figures, tuple(endpoint.address for endpoint in order))
