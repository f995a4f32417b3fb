"""The part that has replicas see at once what the others have in flight, where they share a Redis."""

import time
from collections.abc import Iterator, Sequence
from typing import Self

from prometheus_client import Gauge

from tidegate.fleet.events import OthersReported
from tidegate.runtime.part import Part, Surroundings
from tidegate.sharing import inflight
from tidegate.sharing.allowance import SharedAllowance
from tidegate.sharing.contracts import Telling


class SharedInflight(Part):
    """Tells the other replicas what is in flight here, and the fleet what they told."""

    def __init__(self, surroundings: Surroundings, shared: SharedAllowance, seconds: float) -> None:
        """Tell by the calls of ``shared``, every so many ``seconds``."""
        self._fleet = surroundings.fleet
        self._apply = surroundings.apply
        self._name = shared.names.endpoint
        self._told, self._until = 0, 0.0
        gauge = Gauge(
            "tidegate_redis_others_requests",
            "Requests that other replicas have in flight, as they said through Redis; 0 while nothing is known.",
            registry=surroundings.metrics.registry,
        )
        gauge.set_function(self._requests)
        shared.regularly(seconds, self._tell)

    @classmethod
    def of(cls, surroundings: Surroundings) -> Sequence[Self]:
        """Return the part, if there is a Redis."""
        settings, shared = surroundings.config.redis, surroundings.shared
        return () if settings is None or shared is None else (cls(surroundings, shared, settings.inflight_seconds),)

    def _tell(self) -> Iterator[Telling]:
        yield inflight.tell(self._fleet.in_flight(time.monotonic()), self._name), self._heard

    def _heard(self, result: str) -> None:
        told = inflight.others(result)
        if not told and not self._told:
            return  # nothing, as before
        self._told, self._until = sum(one.requests for one in told.values()), time.monotonic() + inflight.LEASE_SECONDS
        named = ((address, told.get(self._name(address))) for address in self._fleet.addresses())
        loads = tuple((address, others) for address, others in named if others is not None)
        self._apply(OthersReported(loads, inflight.LEASE_SECONDS))

    def _requests(self) -> float:
        return self._told if time.monotonic() <= self._until else 0
