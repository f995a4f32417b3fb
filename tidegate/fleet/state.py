"""The fleet: every fact in one place, changed by events alone."""

import math
from collections.abc import Callable, Iterable
from functools import singledispatchmethod

from tidegate.fleet.condition import METRICS, REACHED, SERVED, unreachable
from tidegate.fleet.declaring import declared, related
from tidegate.fleet.endpoint import PoolSpec
from tidegate.fleet.events import (
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    EvidenceReported,
    FleetChange,
    FleetEvent,
    GpuMemoryReported,
    LoadReported,
    MembershipChanged,
    OthersReported,
    PoolsDeclared,
    ReachabilityChanged,
    RequestEnded,
    RequestProgressed,
    RequestQuarantined,
    RequestReserved,
    ReservationReleased,
    ScrapeFailed,
    ScrapeStarted,
    TimePassed,
)
from tidegate.fleet.evidence import Ending, Evidence
from tidegate.fleet.health import Reachability
from tidegate.fleet.image import FleetImage
from tidegate.fleet.known import Known
from tidegate.fleet.ledger import Reservation
from tidegate.fleet.load import advanced, foreign_requests, plausible
from tidegate.fleet.member import Member

SILENT_SECONDS = 60.0
"""An engine that has not said for so long how busy it is no longer says so; that alone does not mean it is frozen."""


class Fleet(Known):
    """All pools, their endpoints and what is in flight.

    One writer calls ``apply``; readers in the same thread may call the rest at any time. ``now`` never goes back.
    """

    def apply(self, event: FleetEvent, now: float) -> list[FleetChange]:
        """Take in one event at ``now`` (seconds); return what changed for others.

        Events about endpoints or reservations that are not (or no longer) known change nothing.
        """
        # Not through singledispatchmethod itself, which builds a new function at every call, for 20 us; and its
        # dispatcher looks the type up in a mapping of weak keys, for 1 us.
        kind = type(event)
        handle = _handlers.get(kind)
        if handle is None:
            handle = _handlers[kind] = Fleet.__dict__["_apply"].dispatcher.dispatch(kind)
        return list(handle(self, event, now))

    def expire(self, now: float) -> list[ReservationReleased]:
        """Release the reservations whose lease ran out by ``now`` (seconds)."""
        expired = self.ledger.expire(now)
        for lost in expired:
            if member := self._endpoints.get(lost.address):
                member.work.lost(lost.id)
                if member.breaker is not None:
                    member.breaker.lost(lost.id)
                member.shown = None
        return [ReservationReleased(lost, expired=True) for lost in expired]

    def image(self) -> FleetImage:
        """Return all of it as plain data."""
        return FleetImage(
            tuple(pool.image() for pool in self._pools.values()),
            tuple(member.image() for member in self._endpoints.values()),
            tuple(self.ledger),
            tuple(self.quarantine),
        )

    def restore(self, image: FleetImage, now: float) -> None:
        """Become what ``image`` shows; the leases of its reservations begin anew at ``now`` (seconds).

        Raises:
            ValueError: something is known here already.
        """
        if self._pools or len(self.ledger):
            raise ValueError("a fleet is restored into an empty one")
        self.apply(PoolsDeclared(tuple(pool.spec for pool in image.pools)), now)
        for known in image.members:
            self._endpoints[known.address].restore(known)
        for fingerprint, until in image.quarantined:
            self.quarantine.hold(fingerprint, until)
        for pool in image.pools:
            self._pools[pool.spec.name].restore(pool)
            related(self._pools[pool.spec.name].judged)
        for reservation in sorted(image.reservations, key=lambda one: one.reserved_at):
            self._work_on(reservation, reservation.reserved_at)
            self.ledger.reserve(reservation, now)
        for known in image.members:
            self._endpoints[known.address].breaker = known.breaker

    def _work_on(self, reservation: Reservation, now: float) -> None:
        """Have its endpoint begin with ``reservation``, which is not in the ledger yet, at ``now`` (seconds)."""
        pool, member = self._pools.get(reservation.pool), self._endpoints.get(reservation.address)
        if member is not None:
            member.shown = None
            if member.breaker is not None:
                member.breaker.sent(reservation.id, reservation.reserved_at)
            if pool is not None and pool.spec.reckons:
                held = self.ledger.inflight(reservation.address).tokens
                pool.sent += 1
                member.work.started(reservation, pool.load(member, self.ledger, now), held, now, pool.sent)

    @singledispatchmethod
    def _apply(self, event: FleetEvent, now: float) -> Iterable[FleetChange]:
        raise TypeError(f"not a fleet event: {event!r}, at {now}")

    @_apply.register
    def _(self, event: PoolsDeclared, now: float) -> Iterable[FleetChange]:
        before = {name: pool.spec for name, pool in self._pools.items()}
        after = {spec.name: spec for spec in event.pools}
        if list(before.items()) == list(after.items()):
            return
        pools, endpoints = declared(event, self._pools, self._endpoints, now)
        added = tuple(address for address in endpoints if address not in self._endpoints)
        removed = tuple(address for address in self._endpoints if address not in endpoints)
        self._pools, self._endpoints = pools, endpoints
        yield MembershipChanged(added, removed)
        for pool in pools.values():
            yield from pool.judge(now)

    @_apply.register
    def _(self, event: ScrapeStarted, now: float) -> Iterable[FleetChange]:
        if member := self._endpoints.get(event.address):
            member.work.asked(now)
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
        report = plausible(event.report)
        if advanced(member.report, report):
            member.condition.progressed_at = now
        member.take(report, foreign_requests(report, own), now)
        before = member.connections.state
        home = next((pool for pool in self._pools.values() if event.address in pool.places), None)
        if report.waiting is not None and home is not None:
            told = member.others
            each = home.request_tokens.value
            others = told.believed(each).backlog if told is not None and now <= told.until else 0.0
            member.work.reported(report.waiting, home.load(member, self.ledger, now), now, others)
        if member.connections.succeeded():
            yield from self._reachability_changed(member, before, "it answered", now)
        yield from self._showed(member, METRICS, now)

    @_apply.register
    def _(self, event: ScrapeFailed, now: float) -> Iterable[FleetChange]:
        member = self._endpoints.get(event.address)
        if member is None:
            return
        if event.unreachable:
            member.vram = member.vram.unloaded()
        reported_at = math.inf if member.reported_at is None else member.reported_at
        if self._stale_after < now - reported_at < SILENT_SECONDS:
            member.work.distrust(now)
        before = member.connections.state
        changed = member.connections.failed() if event.unreachable else member.connections.succeeded()
        if changed:
            if event.unreachable:
                # Nothing listens there: whatever it is that comes back begins with an empty cache.
                member.presume_empty()
            yield from self._reachability_changed(member, before, event.reason, now)

    def _reachability_changed(
        self, member: Member, before: Reachability, reason: str, now: float
    ) -> Iterable[FleetChange]:
        member.shown = None
        yield ReachabilityChanged(member.spec.address, member.connections.state, reason)
        if Reachability.UNREACHABLE in {before, member.connections.state}:  # all others say nothing new
            failed = member.connections.state is Reachability.UNREACHABLE
            yield from self._heard(member, unreachable(reason) if failed else REACHED, now)

    def _showed(self, member: Member, sign: str, now: float) -> Iterable[FleetChange]:
        """Take in a ``sign`` that ``member`` is ready."""
        if member.condition.shown(sign, now):
            for pool in self._pools.values():
                if member.spec.address in pool.places:
                    yield from pool.judge(now)

    def _heard(self, member: Member, evidence: Evidence, now: float) -> Iterable[FleetChange]:
        member.shown = None
        another = member.condition.hear(evidence, now)
        for pool in self._pools.values():
            if member.spec.address in pool.places:
                if another:
                    yield from pool.judge(now)
                else:
                    pool.health.heard(member.condition)

    @_apply.register
    def _(self, event: RequestReserved, now: float) -> Iterable[FleetChange]:
        if event.reservation.id in self.ledger:
            return ()  # told twice
        reservation = event.reservation
        pool = self._pools.get(reservation.pool)
        self._work_on(reservation, now)
        self.ledger.reserve(reservation, now)
        if pool is not None:
            pool.request_tokens.observe(reservation.tokens)
            if event.prefix and not pool.spec.told:
                pool.prefixes.hold(reservation.address, event.prefix, event.block_tokens)
        return ()

    @_apply.register
    def _(self, event: RequestProgressed, now: float) -> Iterable[FleetChange]:
        self.ledger.renew(event.reservation_id, now)
        return ()

    @_apply.register
    def _(self, event: RequestEnded, now: float) -> Iterable[FleetChange]:
        reservation = self.ledger.reservation(event.reservation_id)
        if reservation is None:
            return
        pool, member = self._pools.get(reservation.pool), self._endpoints.get(reservation.address)
        if member is not None:
            member.shown = None
            if event.ending is Ending.SERVED or (event.ending is None and event.output_tokens and not event.failed):
                member.condition.progressed_at = now
                yield from self._showed(member, SERVED, now)
        if pool is not None and member is not None and pool.spec.reckons:
            member.work.ended(
                reservation.id,
                pool.load(member, self.ledger, now),
                now,
                ttft=event.ttft,
                duration=event.duration,
                output_tokens=event.output_tokens,
                prefilled=None if event.cached_tokens is None else reservation.prompt_tokens - event.cached_tokens,
                failed=event.failed,
            )
        self.ledger.release(reservation.id)
        if member is not None and pool is not None:
            alone = not self.ledger.inflight(reservation.address).requests
            if word := member.heard(reservation, event.ending or Ending.NEUTRAL, now, spec=pool.spec, alone=alone):
                yield from self._heard(member, word, now)
        if event.elsewhere and pool is not None:
            yield from self._tried_elsewhere(event, reservation, pool.spec, now)
        # No tokens at all is no answer: embeddings have none, and say so, and must not make a chat look short.
        if pool is not None and event.output_tokens:
            pool.outputs.observe(reservation.kind, event.output_tokens)
        yield ReservationReleased(reservation)

    def _tried_elsewhere(
        self, event: RequestEnded, reservation: Reservation, spec: PoolSpec, now: float
    ) -> Iterable[FleetChange]:
        for address, ending in event.elsewhere:
            if member := self._endpoints.get(address):
                if ending is Ending.SERVED:
                    member.condition.progressed_at = now
                    yield from self._showed(member, SERVED, now)
                if word := member.heard(reservation, ending, now, spec=spec, alone=False):
                    yield from self._heard(member, word, now)

    @_apply.register
    def _(self, event: BlocksStored, now: float) -> Iterable[FleetChange]:  # noqa: ARG002
        if member := self._endpoints.get(event.address):
            member.prefixes.hold(event.address, event.hashes, event.block_tokens)
        return ()

    @_apply.register
    def _(self, event: BlocksRemoved, now: float) -> Iterable[FleetChange]:  # noqa: ARG002
        if member := self._endpoints.get(event.address):
            member.prefixes.drop(event.address, event.hashes)
        return ()

    @_apply.register
    def _(self, event: BlocksCleared, now: float) -> Iterable[FleetChange]:  # noqa: ARG002
        if member := self._endpoints.get(event.address):
            member.prefixes.forget(event.address)
        return ()

    @_apply.register
    def _(self, event: RequestQuarantined, now: float) -> Iterable[FleetChange]:
        self.quarantine.hold(event.fingerprint, now + event.seconds)
        return ()

    @_apply.register
    def _(self, event: EvidenceReported, now: float) -> Iterable[FleetChange]:
        if member := self._endpoints.get(event.address):
            yield from self._heard(member, event.evidence, now)

    @_apply.register
    def _(self, event: OthersReported, now: float) -> Iterable[FleetChange]:
        loads = dict(event.loads)
        for address, member in self._endpoints.items():
            member.hear_of(loads.get(address), now, event.seconds)
        return ()

    @_apply.register
    def _(self, event: TimePassed, now: float) -> Iterable[FleetChange]:  # noqa: ARG002
        for pool in self._pools.values():
            if pool.health.is_due(now):
                yield from pool.judge(now)

    @_apply.register
    def _(self, event: GpuMemoryReported, now: float) -> Iterable[FleetChange]:
        if member := self._endpoints.get(event.address):
            loaded = member.connections.failures == 0 and member.reported_at is not None
            loaded = loaded and now - (member.reported_at or 0.0) <= self._stale_after
            own = self.ledger.inflight(event.address).tokens
            member.vram, member.shown = member.vram.taken(event.memory, own, now, loaded=loaded), None
        return ()


_handlers: dict[type, Callable[[Fleet, FleetEvent, float], Iterable[FleetChange]]] = {}
