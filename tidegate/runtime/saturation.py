"""The part that says how full the pools are, to those who scale them."""

import time
from collections.abc import Callable, Mapping

from tidegate.config import Config
from tidegate.fleet.events import PoolsDeclared
from tidegate.runtime.part import Part, Surroundings
from tidegate.scheduling.saturation import EMPTY, Backlog, Objective, Saturation, Saturations
from tidegate.telemetry import saturation
from tidegate.telemetry.admin import Page


def objectives(config: Config) -> dict[str, Objective]:
    """Return what each pool of ``config`` is meant to keep, by its name."""
    return {pool.name: pool.objective.judged() for pool in config.pools}


class SaturationGauges(Part):
    """Exports how full each pool is, at every scrape and on the page ``/saturation``."""

    def __init__(self, surroundings: Surroundings, backlog: Callable[[str], Backlog] = lambda _: EMPTY) -> None:
        """Look at the fleet of ``surroundings``; ``backlog`` says what waits in a pool's own queue."""
        self._fleet = surroundings.fleet
        self._saturations = Saturations(surroundings.fleet, backlog)
        surroundings.metrics.registry.register(saturation.SaturationCollector(self.now))

    def follow(self, config: Config, declared: PoolsDeclared) -> None:  # noqa: ARG002
        """Take over what pools are meant to keep."""
        self._saturations.configure(objectives(config))

    def now(self) -> dict[str, Saturation]:
        """Return how full each pool is, by its name."""
        moment = time.monotonic()
        return {pool: self._saturations.of(pool, moment) for pool in self._fleet.pools}

    def pages(self) -> Mapping[str, Page]:
        """Return the page ``/saturation``."""
        return {"/saturation": Page("how full the pools are", lambda _: saturation.describe(self.now()))}
