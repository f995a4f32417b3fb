"""The part that says how full the pools are, to those who scale them."""

import time
from collections.abc import Mapping

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

    def __init__(self, surroundings: Surroundings) -> None:
        """Look at the fleet of ``surroundings``, and at what waits there, if it is this process that decides."""
        self._fleet = surroundings.fleet
        self._waiting_room = surroundings.waiting_room
        self._backlogs: dict[str, Backlog] = {}
        self._saturations = Saturations(surroundings.fleet, lambda pool: self._backlogs.get(pool, EMPTY))
        surroundings.metrics.registry.register(saturation.SaturationCollector(self.now))

    def follow(self, config: Config, declared: PoolsDeclared) -> None:  # noqa: ARG002
        """Take over what pools are meant to keep."""
        self._saturations.configure(objectives(config))

    def now(self) -> dict[str, Saturation]:
        """Return how full each pool is, by its name."""
        self._backlogs = self._waiting()
        moment = time.monotonic()
        return {pool: self._saturations.of(pool, moment) for pool in self._fleet.pools}

    def _waiting(self) -> dict[str, Backlog]:
        room, found = self._waiting_room, dict[str, Backlog]()
        if room is not None:
            for one in room.standings():
                other = found.get(one.pool, EMPTY)
                found[one.pool] = Backlog(other.requests + one.requests, other.tokens + one.tokens, room.rate(one.pool))
        return found

    def pages(self) -> Mapping[str, Page]:
        """Return the page ``/saturation``."""
        return {"/saturation": Page("how full the pools are", lambda _: saturation.describe(self.now()))}
