"""The parts that a control plane has."""

from collections.abc import Sequence

from tidegate.runtime.agents import Agents
from tidegate.runtime.checks import Checks
from tidegate.runtime.health_events import HealthEvents
from tidegate.runtime.part import Part, Surroundings
from tidegate.runtime.quarantines import Quarantines
from tidegate.runtime.queues import Queues
from tidegate.runtime.rollouts import Rollouts
from tidegate.runtime.saturation import SaturationGauges
from tidegate.runtime.shared_inflight import SharedInflight


def made(surroundings: Surroundings) -> Sequence[Part]:
    """Return the parts, in the order in which they begin to listen."""
    agents = surroundings.config.agents
    return (
        HealthEvents(surroundings.fleet, surroundings.metrics),
        Rollouts.of(surroundings),
        SaturationGauges(surroundings),
        *(() if agents is None else (Agents(surroundings, agents),)),
        Queues(surroundings),
        Checks(surroundings),
        Quarantines(surroundings),
        *SharedInflight.of(surroundings),
    )
