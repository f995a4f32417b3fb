"""The parts that a control plane has."""

from collections.abc import Sequence

from tidegate.runtime.checks import Checks
from tidegate.runtime.health_events import HealthEvents
from tidegate.runtime.part import Part, Surroundings
from tidegate.runtime.rollouts import Rollouts
from tidegate.runtime.saturation import SaturationGauges


def made(surroundings: Surroundings) -> Sequence[Part]:
    """Return the parts, in the order in which they begin to listen."""
    return (
        HealthEvents(surroundings.fleet, surroundings.metrics),
        Rollouts.of(surroundings),
        SaturationGauges(surroundings),
        Checks(surroundings),
    )
