"""How each class of requests fared, what waiting was like, and how even tenants were served."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.simulator.virtual.outcome import Ending, Outcome
from tidegate.simulator.virtual.percentiles import Percentiles

TURNED_AWAY = (Ending.FULL, Ending.TENANT_FULL, Ending.SHED, Ending.WOULD_WAIT, Ending.EXPIRED)
"""The endings that are a queue's doing."""

LEAST_WAIT = 1.0
"""Errors of estimates are compared with the wait, or with so many seconds where it was shorter: 0.1 s foretold as 0.3 s
is no error of 200 % to anybody."""


@dataclass(frozen=True, slots=True)
class ClassReport:
    """The requests of one priority.

    Attributes:
        priority: it.
        requests: how many.
        answered: how many were answered.
        turned_away: how many the queue turned away, by the names of ``Ending``; those above 0.
        goodput: share that met the SLO.
        ttft: time to the first token, from the arrival; seconds, of those that were answered.
        waited: time in the queue of those that went, at once or later; seconds.
    """

    priority: int
    requests: int
    answered: int
    turned_away: Mapping[str, int]
    goodput: float
    ttft: Percentiles
    waited: Percentiles


@dataclass(frozen=True, slots=True)
class Waits:
    """What waiting was like, in all.

    Attributes:
        requests: how many waited.
        went: how many of them went to an engine.
        waited: for how long those did, in seconds.
        error: how far off their estimates were, in seconds, too long and too short alike.
        relative_error: the same, over the wait or ``LEAST_WAIT``.
        late: share of them that waited for longer than was said.
        fairness: Jain's index of the tokens of answered requests by tenant, 1 being even; ``None`` with one tenant.
    """

    requests: int
    went: int
    waited: Percentiles
    error: Percentiles
    relative_error: Percentiles
    late: float | None
    fairness: float | None


def by_class(outcomes: Sequence[Outcome], good: Callable[[Outcome], bool]) -> tuple[ClassReport, ...]:
    """Return how each class fared, the most urgent first; ``good`` says which requests met the SLO."""
    reports = []
    for priority in sorted({one.priority for one in outcomes}, reverse=True):
        those = [one for one in outcomes if one.priority == priority]
        ended = Counter(one.ending for one in those)
        reports.append(
            ClassReport(
                priority,
                len(those),
                ended[Ending.ANSWERED],
                {ending.value: ended[ending] for ending in TURNED_AWAY if ended[ending]},
                sum(map(good, those)) / len(those),
                Percentiles.of([one.ttft for one in those if one.ttft is not None]),
                Percentiles.of([one.waited or 0.0 for one in those if one.ending not in TURNED_AWAY]),
            )
        )
    return tuple(reports)


def waits(outcomes: Sequence[Outcome]) -> Waits:
    """Return what waiting was like."""
    waited = [one for one in outcomes if one.waited is not None]
    went = [one for one in waited if one.ending not in TURNED_AWAY]
    pairs = [(one.estimate, one.waited) for one in went if one.estimate is not None and one.waited is not None]
    return Waits(
        len(waited),
        len(went),
        Percentiles.of([one.waited for one in went if one.waited is not None]),
        Percentiles.of([abs(said - true) for said, true in pairs]),
        Percentiles.of([abs(said - true) / max(LEAST_WAIT, true) for said, true in pairs]),
        sum(true > said for said, true in pairs) / len(pairs) if pairs else None,
        _fairness(outcomes),
    )


def _fairness(outcomes: Sequence[Outcome]) -> float | None:
    """Return (sum x)^2 / (n * sum x^2) of the tokens served by tenant (Jain, Chiu, Hawe 1984)."""
    served: Counter[str] = Counter({one.tenant: 0 for one in outcomes})
    for one in outcomes:
        if one.ending is Ending.ANSWERED:
            served[one.tenant] += one.prompt_tokens + one.output_tokens
    squares = sum(tokens**2 for tokens in served.values())
    return sum(served.values()) ** 2 / (len(served) * squares) if len(served) > 1 and squares else None
