"""Engines asked how they are: which ones, and what is known of each beside that."""

import asyncio
import random
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from tidegate.certificates import Outgoing
from tidegate.config import Config
from tidegate.engines.check import NOTHING_KNOWN, Standing, Subject
from tidegate.engines.checker import Checker, Key
from tidegate.engines.movement import Movement
from tidegate.fleet.events import PoolsDeclared
from tidegate.runtime.part import Part, Surroundings
from tidegate.telemetry.admin import Page
from tidegate.telemetry.checks import CheckFigures
from tidegate.telemetry.outcome import Outcome
from tidegate.telemetry.record import RequestRecord
from tidegate.telemetry.status import JsonObject

LOOK_SECONDS: Final = 1.0
"""Pause between two looks at what moves."""

LOOKS: Final = 50
"""Endpoints that are looked at in one turn of the event loop, in which requests are decided."""


class Checks(Part):
    """Runs the checks of all pools."""

    def __init__(self, surroundings: Surroundings) -> None:
        """Check nothing before ``run``."""
        self._fleet = surroundings.fleet
        self._to_engines = surroundings.to_engines
        self._movements: dict[str, Movement] = {}
        figures = CheckFigures(surroundings.metrics.registry)
        self._checker = Checker(self._standing, surroundings.apply, random.SystemRandom(), figures.checked)

    def follow(self, config: Config, declared: PoolsDeclared) -> None:
        """Check the endpoints of ``declared``, by the checks that ``config`` has for their pools."""
        subjects = dict(checked(config, declared, self._to_engines(config, declared)))
        addresses, now = {address for address, _ in subjects}, time.monotonic()
        kept = self._movements
        self._movements = {address: kept.get(address) or Movement(now) for address in addresses}
        self._checker.watch(subjects)

    async def run(self) -> None:
        """Check, and look at what moves, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._checker.run())
            while True:
                for number, (address, movement) in enumerate([*self._movements.items()]):
                    now = time.monotonic()
                    movement.looked(self._fleet.at_work(address, now), now)
                    if number % LOOKS == LOOKS - 1:
                        await asyncio.sleep(0)
                await asyncio.sleep(LOOK_SECONDS)

    def ended(self, record: RequestRecord) -> None:
        """Take note of a request that was served: that is progress."""
        if record.outcome is Outcome.OK and record.served is not None and record.served in self._movements:
            self._movements[record.served].served(time.monotonic())

    def pages(self) -> Mapping[str, Page]:
        """Return the page that shows what was found."""
        return {"/checks": Page("what the checks of engines found, as JSON", self._described)}

    def _standing(self, address: str) -> Standing:
        movement, now = self._movements.get(address), time.monotonic()
        return NOTHING_KNOWN if movement is None else movement.standing(self._fleet.at_work(address, now), now)

    def _described(self, query: Mapping[str, str]) -> JsonObject:  # noqa: ARG002
        return {
            "checks": [
                {
                    "pool": state.pool,
                    "address": state.address,
                    "check": state.check,
                    "verdict": state.verdict.value,
                    "finding": state.last.finding.value if state.last else None,
                    "reason": state.last.reason if state.last else "",
                    "detail": state.last.detail if state.last else "",
                }
                for state in self._checker.states()
            ]
        }


def checked(
    config: Config, declared: PoolsDeclared, secured: Mapping[str, Outgoing] = MappingProxyType({})
) -> Iterator[tuple[Key, Subject]]:
    """Return who is to be asked what, by what ``config`` says of the pools of ``declared``.

    Those at the addresses of ``secured`` are asked over TLS.
    """
    settings = {pool.name: pool for pool in config.pools}
    for pool in declared.pools:
        found = settings.get(pool.name)
        for check in found.checks if found is not None else ():
            for endpoint in pool.endpoints:
                models = tuple(name for name in endpoint.models or pool.models if "*" not in name)
                tls = secured.get(endpoint.address)
                subject = Subject(pool.name, endpoint.address, pool.engine, models, check, tls=tls)
                yield (endpoint.address, check.name), subject
