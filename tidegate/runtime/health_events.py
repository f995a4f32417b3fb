"""The part that says how endpoints become what they are: in the log, as metrics, and in a history that can be asked."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tidegate.config import Config
from tidegate.fleet.events import FleetChange, HealthChanged, PoolAlarmed, PoolsDeclared
from tidegate.fleet.health import HealthStatus
from tidegate.fleet.state import Fleet
from tidegate.runtime.part import Part
from tidegate.telemetry.admin import Page, UnanswerableError
from tidegate.telemetry.health import HealthFigures, described
from tidegate.telemetry.labels import clean
from tidegate.telemetry.log import event
from tidegate.telemetry.metrics import Metrics
from tidegate.telemetry.status import JsonObject

logger = logging.getLogger("tidegate.health")

KEPT: Final = 1000
"""Events that are remembered."""

_BAD = frozenset({HealthStatus.EJECTED, HealthStatus.DEGRADED})


class HealthEvents(Part):
    """Tells of every change of an endpoint's health, and of pools where something else is the matter."""

    def __init__(self, fleet: Fleet, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        """Tell of ``fleet``, and count in ``metrics``; ``clock`` gives the fleet's seconds."""
        self._fleet = fleet
        self._clock = clock
        self._events: deque[JsonObject] = deque(maxlen=KEPT)
        self._figures = HealthFigures(metrics.registry, lambda: fleet.views(clock()), fleet.alarms)

    def follow(self, config: Config, declared: PoolsDeclared) -> None:  # noqa: ARG002  pools alone count
        """Count for the pools that there are."""
        self._figures.configure([pool.name for pool in declared.pools])

    def changed(self, change: FleetChange) -> None:
        """Log, count and remember what concerns health."""
        match change:
            case HealthChanged():
                self._health_changed(change)
            case PoolAlarmed():
                self._alarmed(change)

    def pages(self) -> Mapping[str, Page]:
        """Return the pages of the history and of one endpoint."""
        return {
            "/events": Page("what happened to endpoints' health, as JSON (tidegate events)", self._history),
            "/endpoint": Page("why ?address=IP:PORT is how it is (tidegate explain --endpoint)", self._endpoint),
        }

    # -- inside

    def _health_changed(self, change: HealthChanged) -> None:
        health, before = change.health, change.before
        self._figures.changed(change.pool, health.status, health.reasons)
        reasons, seconds = ", ".join(health.reasons), round(max(0.0, health.since - before.since), 1)
        event(
            logger,
            f"endpoint {health.status.value}",
            level=logging.WARNING if health.status in _BAD else logging.INFO,
            pool=change.pool,
            address=change.address,
            was=before.status.value,
            for_seconds=seconds,
            reasons=clean(reasons),
            detail=clean(change.detail),
        )
        self._events.append(
            {
                "at": round(time.time(), 3),
                "pool": change.pool,
                "address": change.address,
                "event": health.status.value,
                "was": before.status.value,
                "was_seconds": seconds,
                "reasons": [clean(reason) for reason in health.reasons],
                "detail": clean(change.detail),
            }
        )

    def _alarmed(self, change: PoolAlarmed) -> None:
        for name, was, is_now, words in _alarms(change):
            if was is is_now:
                continue
            what = name if is_now else f"{name}_over"
            detail = f"{change.alarm.bad} of {change.alarm.of} look bad; {words}" if is_now else "it is over"
            level = logging.ERROR if is_now else logging.INFO
            event(logger, f"pool {what}", level=level, pool=change.pool, detail=detail)
            self._events.append(
                {
                    "at": round(time.time(), 3),
                    "pool": change.pool,
                    "address": "",
                    "event": what,
                    "was": "",
                    "was_seconds": 0.0,
                    "reasons": [],
                    "detail": detail,
                }
            )

    def _history(self, asked: Mapping[str, str]) -> JsonObject:
        """Return the events, the oldest first; of one ``pool`` or ``address``, or the last so many (``limit``)."""
        limit = asked.get("limit", str(KEPT))
        if not (limit.isascii() and limit.isdigit() and len(limit) <= 9):
            raise UnanswerableError(400, "limit: expected a whole number")
        found = [
            one for one in self._events if all(one[key] == asked[key] for key in ("pool", "address") if key in asked)
        ]
        return {"events": found[max(0, len(found) - int(limit)) :]}

    def _endpoint(self, asked: Mapping[str, str]) -> JsonObject:
        address = asked.get("address", "")
        found = self._fleet.outlook(address, self._clock())
        if found is None:
            raise UnanswerableError(404, f"there is no endpoint {clean(address)!r}")
        return described(address, found)


def _alarms(change: PoolAlarmed) -> Iterator[tuple[str, bool, bool, str]]:
    before, alarm = change.before, change.alarm
    yield "panic", before.panic, alarm.panic, "nobody is ejected, because the fault is probably elsewhere"
    yield "agents_doubted", before.doubt, alarm.doubt, "what agents alone say against endpoints is not believed"
