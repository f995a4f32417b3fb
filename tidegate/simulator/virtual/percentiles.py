"""What most, nearly all, and all but a few of a number of durations stay below."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of a number of durations, in seconds; ``None`` where there were none."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Percentiles":
        """Work them out, by nearest rank: the smallest value that so many per cent do not exceed."""
        if not values:
            return cls(None, None, None, None)
        ranked = sorted(values)
        p50, p90, p99 = (ranked[max(math.ceil(share * len(ranked)), 1) - 1] for share in (0.5, 0.9, 0.99))
        return cls(math.fsum(ranked) / len(ranked), p50, p90, p99)
