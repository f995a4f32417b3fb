"""How a pool's endpoints are chosen, as an operator declares it."""

from dataclasses import dataclass

from tidegate.scheduling import filters
from tidegate.scheduling.lanes import Lane


@dataclass(frozen=True, slots=True)
class Policy:
    """How a pool's endpoints are chosen.

    Attributes:
        picker: a name from ``pickers.names()``.
        destinations: how many endpoints are named in a decision, the fallbacks for Envoy's retries included; 1 or more.
        filters: names from ``filters.names()``, applied in this order, after those that cannot be chosen.
        weights: scorers and their weights, for a picker that weighs them; empty for its own.
        lanes: parts of the endpoints for large prompts; none by default.
    """

    picker: str
    destinations: int = 3
    filters: tuple[str, ...] = filters.DEFAULT
    weights: tuple[tuple[str, float], ...] = ()
    lanes: tuple[Lane, ...] = ()
