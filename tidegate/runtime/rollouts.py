"""The rollouts: they are judged by how requests end, and their shares go into the configuration that is decided by."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tidegate.config import Config
from tidegate.config_routes import Route
from tidegate.fleet.events import PoolsDeclared
from tidegate.runtime import kept
from tidegate.runtime.part import Part, Surroundings
from tidegate.scheduling.rollout import Phase, Plan, Rollout, Sample, Standing
from tidegate.telemetry.admin import Action, Page, UnanswerableError
from tidegate.telemetry.log import event
from tidegate.telemetry.outcome import Outcome
from tidegate.telemetry.record import RequestRecord
from tidegate.telemetry.rollouts import RolloutFigures, described
from tidegate.telemetry.status import JsonObject

logger = logging.getLogger("tidegate.rollout")

TICK_SECONDS: Final = 1.0

FILE: Final = "rollouts.json"

ACTIONS: Final = ("pause", "resume", "promote", "rollback")

_FAILED = frozenset({Outcome.UPSTREAM_ERROR, Outcome.TIMEOUT, Outcome.UNAVAILABLE, Outcome.UNDECIDED})
_SAYS_NOTHING = frozenset({Outcome.CLIENT_ERROR, Outcome.CLIENT_GONE, Outcome.RUNNING, Outcome.UNKNOWN})
_NO_ENDPOINTS = 503


class Running:
    """One rollout, and between whom."""

    def __init__(self, canary: str, stable: str, rollout: Rollout) -> None:
        self.canary = canary
        self.stable = stable
        self.rollout = rollout


class Rollouts(Part):
    """Runs the rollouts of a configuration."""

    def __init__(
        self,
        readjust: Callable[[], None],
        clock: Callable[[], float],
        figures: RolloutFigures,
        folder: Path | None = None,
    ) -> None:
        """Begin with what was kept in ``folder``, if there is one; ``readjust`` has ``adjusted`` asked again."""
        self._readjust = readjust
        self._clock = clock
        self._figures = figures
        self._file = None if folder is None else folder / FILE
        self._running: dict[str, Running] = {}
        self._kept = self._read()

    @classmethod
    def of(cls, surroundings: Surroundings) -> "Rollouts":
        """Run those of a control plane with these ``surroundings``."""
        folder = surroundings.config.control.state_dir
        figures = RolloutFigures(surroundings.metrics.registry)
        return cls(surroundings.readjust, time.monotonic, figures, None if folder is None else Path(folder))

    # -- a part

    def adjusted(self, config: Config) -> Config:
        """Return ``config`` with the shares that rollouts have come to."""
        self._take_over(config)
        if not self._running:
            return config
        routes = tuple(self._shared(name, route) for name, route in _named(config))
        return config.model_copy(update={"routes": routes})

    def follow(self, config: Config, declared: PoolsDeclared) -> None:  # noqa: ARG002  pools alone count
        """Show what is taken over."""
        self._figures.configure({name: running.rollout for name, running in self._running.items()})

    def ended(self, record: RequestRecord) -> None:
        """Take in how a request ended at a side of a rollout."""
        if not self._running or not record.pool or record.outcome in _SAYS_NOTHING:
            return
        for running in self._running.values():
            if record.pool in {running.canary, running.stable}:
                running.rollout.observe(_sample(record), canary=record.pool == running.canary)

    async def run(self) -> None:
        """Judge, for ever."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.judge()

    def judge(self) -> None:
        """Judge all rollouts now, and have their shares taken over where they changed."""
        now = self._clock()
        changed = [name for name, running in self._running.items() if running.rollout.tick(now)]
        for name in changed:
            self._changed(name)

    def pages(self) -> Mapping[str, Page]:
        """Return the page of the rollouts."""
        return {"/rollouts": Page("the rollouts, as JSON", lambda _: self.describe())}

    def actions(self) -> Mapping[str, Action]:
        """Return what can be done to them."""
        return {"/rollouts": Action("pause, resume, promote or rollback a rollout (POST; tidegate rollout)", self.act)}

    # -- by hand

    def act(self, asked: Mapping[str, str]) -> JsonObject:
        """Do what is ``asked``: an ``action`` on the rollout of a ``route``.

        Raises:
            UnanswerableError: there is no such rollout or action, or it cannot be done now.
        """
        name, action = asked.get("route", ""), asked.get("action", "")
        running = self._running.get(name)
        if running is None:
            raise UnanswerableError(404, f"there is no rollout {name!r}: {', '.join(self._running) or 'there is none'}")
        rollout, now = running.rollout, self._clock()
        match action:
            case "pause":
                done = rollout.pause()
            case "resume":
                done = rollout.resume(now)
            case "promote":
                done = rollout.promote(now)
            case "rollback":
                done = rollout.rollback(now)
            case _:
                raise UnanswerableError(400, f"expected one of {', '.join(ACTIONS)}, not {action!r}")
        if not done:
            raise UnanswerableError(409, f"the rollout {name!r} is {rollout.standing.phase.value}")
        kept = self._changed(name)
        return {**self._described(name, running), "kept": kept}

    def describe(self) -> JsonObject:
        """Return the page."""
        return {"rollouts": [self._described(name, running) for name, running in self._running.items()]}

    # -- inside

    def _described(self, name: str, running: Running) -> JsonObject:
        return described(name, running.canary, running.stable, running.rollout, self._clock())

    def _changed(self, name: str) -> bool:
        """Have a change taken over; return whether it outlives a restart."""
        rollout = self._running[name].rollout
        standing = rollout.standing
        level = logging.WARNING if standing.phase is Phase.ROLLED_BACK else logging.INFO
        share = f"{rollout.share:.0%}"
        event(logger, f"rollout {standing.phase.value}", level=level, route=name, share=share, reason=standing.reason)
        self._figures.moved(name, standing.phase)
        self._readjust()
        return self._keep()

    def _take_over(self, config: Config) -> None:
        before, self._running = self._running, {}
        for name, route in _named(config):
            if route.rollout is None:
                continue
            canary = route.rollout.canary
            stable = next(pool for pool in route.pools if pool != canary)
            self._running[name] = self._continued(before.get(name), name, canary, stable, route.rollout.plan)

    def _continued(self, before: Running | None, name: str, canary: str, stable: str, plan: Plan) -> Running:
        if before is not None and (before.canary, before.stable) == (canary, stable):
            if before.rollout.plan == plan:
                return before
            return Running(canary, stable, Rollout(plan, self._clock(), before.rollout.standing))
        standing = self._kept.pop(name, {}).get(f"{canary} {stable}")
        return Running(canary, stable, Rollout(plan, self._clock(), standing))

    def _shared(self, name: str, route: Route) -> Route:
        if name not in self._running or route.rollout is None:
            return route
        share = self._running[name].rollout.share
        canary = route.rollout.canary
        sides = tuple(
            side.model_copy(update={"weight": share if side.pool == canary else 1.0 - share}) for side in route.split
        )
        return route.model_copy(update={"split": sides})

    # -- over a restart

    def _keep(self) -> bool:
        if self._file is None:
            return False
        content = {
            name: {
                "between": f"{running.canary} {running.stable}",
                "phase": running.rollout.standing.phase.value,
                "step": running.rollout.standing.step,
                "reason": running.rollout.standing.reason,
            }
            for name, running in self._running.items()
        }
        try:
            kept.write(self._file, content)
        except OSError as error:
            event(logger, "rollouts not kept", level=logging.ERROR, file=str(self._file), reason=str(error))
            return False
        return True

    def _read(self) -> dict[str, dict[str, Standing]]:
        if self._file is None:
            return {}
        try:
            return {
                name: {one["between"]: Standing(Phase(one["phase"]), int(one["step"]), str(one["reason"]))}
                for name, one in (kept.read(self._file) or {}).items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            event(logger, "kept rollouts not read", level=logging.ERROR, file=str(self._file), reason=repr(error))
            return {}


def _named(config: Config) -> Iterator[tuple[str, Route]]:
    for at, route in enumerate(config.routes):
        yield route.name or f"routes[{at}]", route


def _sample(record: RequestRecord) -> Sample:
    # What is refused for want of an endpoint is as lost as what an endpoint failed; a limit is nobody's fault.
    refused = record.outcome is Outcome.REFUSED and record.status == _NO_ENDPOINTS
    failed = record.outcome in _FAILED or refused
    return Sample(failed, record.engine_ttft_seconds, record.seconds_per_output_token)
