"""The part that keeps requests that kill engines from the engines that are left."""

import logging
import time

from prometheus_client import Counter, Gauge

from tidegate.config import Config
from tidegate.fleet.events import PoolsDeclared, RequestQuarantined
from tidegate.fleet.evidence import Ending
from tidegate.fleet.quarantine import DEADLY, Suspects
from tidegate.runtime.part import Part, Surroundings
from tidegate.telemetry.log import event
from tidegate.telemetry.record import RequestRecord

AT_ONCE_SECONDS = 0.5
"""An answer that ended so soon after its first byte had hardly begun: a dying engine says so in its first event."""

logger = logging.getLogger("tidegate.quarantine")


class Quarantines(Part):
    """Puts a request into quarantine when a second engine died under it."""

    def __init__(self, surroundings: Surroundings) -> None:
        """Begin with nobody under suspicion."""
        self._fleet, self._apply = surroundings.fleet, surroundings.apply
        self._seconds = surroundings.config.limits.quarantine_seconds
        self._suspects = Suspects()
        registry = surroundings.metrics.registry
        self._quarantined = Counter(
            "tidegate_quarantines_total",
            "Requests kept from the fleet for killing engines.",
            registry=registry,
        )
        held = Gauge("tidegate_quarantined_requests", "Requests that are kept from it now.", registry=registry)
        held.set_function(lambda: self._fleet.quarantine.held(time.monotonic()))

    def follow(self, config: Config, declared: PoolsDeclared) -> None:  # noqa: ARG002
        """Take over for how long requests are held from now on."""
        self._seconds = config.limits.quarantine_seconds

    def ended(self, record: RequestRecord) -> None:
        """See whether an engine died under it, or whether it is beyond suspicion."""
        if not self._seconds or not (self._suspects or any(ending in DEADLY for _, ending in record.tried)):
            return
        reservation = self._fleet.ledger.reservation(record.reservation)
        if reservation is None or not reservation.fingerprint:
            return
        if any(attempt.ending is Ending.SERVED for attempt in record.tried):
            self._suspects.served(reservation.fingerprint)
            return
        dead = _left_dead(record)
        if dead and self._suspects.died(reservation.fingerprint, dead, time.monotonic()):
            self._apply(RequestQuarantined(reservation.fingerprint, self._seconds))
            self._quarantined.inc()
            event(
                logger,
                "request quarantined: engines died under it",
                level=logging.ERROR,
                fingerprint=f"{reservation.fingerprint:016x}",
                pool=record.pool,
                model=record.model,
                request=record.request_id,
                endpoints=", ".join(dict.fromkeys(dead)),
                seconds=self._seconds,
            )


def _left_dead(record: RequestRecord) -> list[str]:
    """Return the endpoints that died under it before they answered."""
    tried = record.tried
    whole, ttft = record.duration_seconds, record.ttft_seconds
    if whole is not None and ttft is not None and whole - ttft > AT_ONCE_SECONDS:
        tried = tried[:-1]
    return [attempt.address for attempt in tried if attempt.ending in DEADLY]
