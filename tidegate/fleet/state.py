"""The fleet: every fact in one place, changed by events alone."""

from collections.abc import Iterable, Mapping
from functools import singledispatchmethod

from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import (
    FleetChange,
    FleetEvent,
    LoadReported,
    MembershipChanged,
    PoolsDeclared,
    ReachabilityChanged,
    RequestEnded,
    RequestProgressed,
    RequestReserved,
    ReservationReleased,
    ScrapeFailed,
    ScrapeStarted,
)
from tidegate.fleet.health import ConnectionRecord, ejected
from tidegate.fleet.ledger import Ledger
from tidegate.fleet.load import EngineReport, MeanTokens, foreign_requests
from tidegate.fleet.view import EndpointView, PoolView

STALE_AFTER = 5.0
"""Seconds after which a report no longer counts: the endpoint's load is then what we have in flight there."""

PRIOR_REQUEST_TOKENS = 1000.0
PRIOR_OUTPUT_TOKENS = 250.0
"""Tokens of a typical request and answer until some were seen (Azure's 2023 conversation trace: 1155 and 211)."""


class _Endpoint:
    __slots__ = ("connections", "foreign", "own_at_scrape", "report", "reported_at", "spec")

    def __init__(self, spec: EndpointSpec) -> None:
        self.spec = spec
        self.connections = ConnectionRecord()
        self.report = EngineReport()
        self.reported_at: float | None = None
        self.own_at_scrape = 0
        self.foreign = 0.0


class _Pool:
    __slots__ = ("output_tokens", "request_tokens", "spec")

    def __init__(self, spec: PoolSpec) -> None:
        self.spec = spec
        self.request_tokens = MeanTokens(PRIOR_REQUEST_TOKENS)
        self.output_tokens = MeanTokens(PRIOR_OUTPUT_TOKENS)


class Fleet:
    """All pools, their endpoints and what is in flight.

    One writer calls ``apply``; readers in the same thread may call the rest at any time.
    """

    def __init__(self, lease_seconds: float) -> None:
        """``lease_seconds``: how long a reservation lives without a sign of its request (see ``ledger``)."""
        self.ledger = Ledger(lease_seconds)
        self._pools: dict[str, _Pool] = {}
        self._endpoints: dict[str, _Endpoint] = {}

    @property
    def pools(self) -> Mapping[str, PoolSpec]:
        """The declared pools by name, in the order of their declaration."""
        return {name: pool.spec for name, pool in self._pools.items()}

    def apply(self, event: FleetEvent, now: float) -> list[FleetChange]:
        """Take in one event at ``now`` (seconds); return what changed for others.

        Events about endpoints or reservations that are not (or no longer) known change nothing.
        """
        return list(self._apply(event, now))

    def expire(self, now: float) -> list[FleetChange]:
        """Release the reservations whose lease ran out by ``now`` (seconds)."""
        return [ReservationReleased(lost, expired=True) for lost in self.ledger.expire(now)]

    def expected_output(self, pool: str, limit: int | None) -> int:
        """Return how many tokens an answer in ``pool`` will probably have, never more than its ``limit`` in tokens."""
        learned = round(self._pools[pool].output_tokens.value)
        return learned if limit is None else min(learned, limit)

    def view(self, pool: str, now: float) -> PoolView:
        """Return ``pool`` as it is at ``now`` (seconds).

        Raises:
            KeyError: there is no such pool.
        """
        state = self._pools[pool]
        spec = state.spec
        members = [self._endpoints[endpoint.address] for endpoint in spec.endpoints]
        out = ejected((member.spec.address, member.connections.state) for member in members)
        views = tuple(self._view(member, member.spec.address in out, state, now) for member in members)
        return PoolView(spec.name, spec.engine, spec.models, views)

    def views(self, now: float) -> tuple[PoolView, ...]:
        """Return all pools as they are at ``now`` (seconds)."""
        return tuple(self.view(name, now) for name in self._pools)

    def _view(self, member: _Endpoint, is_ejected: bool, pool: _Pool, now: float) -> EndpointView:
        inflight = self.ledger.inflight(member.spec.address)
        age = None if member.reported_at is None else now - member.reported_at
        fresh = age is not None and age <= STALE_AFTER
        report = member.report if fresh else EngineReport()
        foreign = member.foreign if fresh else 0.0
        return EndpointView(
            address=member.spec.address,
            weight=member.spec.weight,
            reachability=member.connections.state,
            ejected=is_ejected,
            inflight_requests=inflight.requests,
            inflight_tokens=inflight.tokens,
            requests=inflight.requests + foreign,
            tokens=inflight.tokens + foreign * pool.request_tokens.value,
            running=report.running,
            waiting=report.waiting,
            kv_usage=report.kv_usage,
            report_age=age,
        )

    @singledispatchmethod
    def _apply(self, event: FleetEvent, now: float) -> Iterable[FleetChange]:
        raise TypeError(f"not a fleet event: {event!r}, at {now}")

    @_apply.register
    def _(self, event: PoolsDeclared, now: float) -> Iterable[FleetChange]:  # noqa: ARG002
        before = {name: pool.spec for name, pool in self._pools.items()}
        after = {spec.name: spec for spec in event.pools}
        if list(before.items()) == list(after.items()):
            return
        pools = {name: self._pools.get(name) or _Pool(spec) for name, spec in after.items()}
        endpoints: dict[str, _Endpoint] = {}
        for spec in event.pools:
            pools[spec.name].spec = spec
            for endpoint in spec.endpoints:
                member = self._endpoints.get(endpoint.address) or _Endpoint(endpoint)
                member.spec = endpoint
                endpoints[endpoint.address] = member
        added = tuple(address for address in endpoints if address not in self._endpoints)
        removed = tuple(address for address in self._endpoints if address not in endpoints)
        self._pools, self._endpoints = pools, endpoints
        yield MembershipChanged(added, removed)

    @_apply.register
    def _(self, event: ScrapeStarted, now: float) -> Iterable[FleetChange]:  # noqa: ARG002
        if member := self._endpoints.get(event.address):
            member.own_at_scrape = self.ledger.inflight(event.address).requests
        return ()

    @_apply.register
    def _(self, event: LoadReported, now: float) -> Iterable[FleetChange]:
        member = self._endpoints.get(event.address)
        if member is None:
            return
        # The engine looked at its queue somewhere between the scrape's start and now: the larger of our own counts at
        # both ends is surely ours, so that no request of ours is taken for somebody else's.
        own = max(member.own_at_scrape, self.ledger.inflight(event.address).requests)
        member.report, member.reported_at = event.report, now
        member.foreign = foreign_requests(event.report, own)
        if member.connections.succeeded():
            yield ReachabilityChanged(event.address, member.connections.state, "it answered")

    @_apply.register
    def _(self, event: ScrapeFailed, now: float) -> Iterable[FleetChange]:  # noqa: ARG002
        member = self._endpoints.get(event.address)
        if member is None:
            return
        changed = member.connections.failed() if event.unreachable else member.connections.succeeded()
        if changed:
            yield ReachabilityChanged(event.address, member.connections.state, event.reason)

    @_apply.register
    def _(self, event: RequestReserved, now: float) -> Iterable[FleetChange]:
        self.ledger.reserve(event.reservation, now)
        if pool := self._pools.get(event.reservation.pool):
            pool.request_tokens.observe(event.reservation.tokens)
        return ()

    @_apply.register
    def _(self, event: RequestProgressed, now: float) -> Iterable[FleetChange]:
        self.ledger.renew(event.reservation_id, now)
        return ()

    @_apply.register
    def _(self, event: RequestEnded, now: float) -> Iterable[FleetChange]:  # noqa: ARG002
        reservation = self.ledger.release(event.reservation_id)
        if reservation is None:
            return
        pool = self._pools.get(reservation.pool)
        if pool is not None and event.output_tokens is not None:
            pool.output_tokens.observe(event.output_tokens)
        yield ReservationReleased(reservation)
