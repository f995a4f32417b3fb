"""The fleet: every fact in one place, changed by events alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import singledispatchmethod

from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
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
    PoolsDeclared,
    ReachabilityChanged,
    RequestEnded,
    RequestProgressed,
    RequestQuarantined,
    RequestReserved,
    ReservationReleased,
    ScrapeFailed,
    ScrapeStarted,
)
from tidegate.fleet.health import Reachability
from tidegate.fleet.image import FleetImage, MemberImage, PoolImage
from tidegate.fleet.ledger import Ledger, Reservation
from tidegate.fleet.load import foreign_requests, plausible
from tidegate.fleet.member import Member, PoolState
from tidegate.fleet.prefix_index import MAX_BLOCKS
from tidegate.fleet.prefix_match import PrefixMatch, PrefixTokens
from tidegate.fleet.quarantine import Quarantine
from tidegate.fleet.view import PoolView

STALE_AFTER = 5.0
"""Seconds after which a report no longer counts, unless the caller says otherwise."""


class Fleet:
    """All pools, their endpoints and what is in flight.

    One writer calls ``apply``; readers in the same thread may call the rest at any time. ``now`` never goes back.
    """

    def __init__(self, lease_seconds: float, stale_after: float = STALE_AFTER) -> None:
        """Begin without pools.

        Args:
            lease_seconds: how long a reservation lives without a sign of its request (see ``ledger``).
            stale_after: how many seconds a report counts; must exceed the pause between two scrapes.
        """
        self.ledger = Ledger(lease_seconds)
        self.quarantine = Quarantine()
        self._stale_after = stale_after
        self._pools: dict[str, PoolState] = {}
        self._endpoints: dict[str, Member] = {}

    @property
    def pools(self) -> Mapping[str, PoolSpec]:
        """The declared pools by name, in the order of their declaration."""
        return {name: pool.spec for name, pool in self._pools.items()}

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
                member.shown = None
        return [ReservationReleased(lost, expired=True) for lost in expired]

    def expected_output(self, pool: str, limit: int | None, kind: str = "") -> int:
        """Return how many tokens an answer in ``pool`` will probably have, never more than its ``limit`` in tokens.

        ``kind`` is that of the request (see ``Reservation``).

        Raises:
            KeyError: there is no such pool.
        """
        if limit is not None and limit <= 0:
            return 0
        return round(self._pools[pool].outputs.mean(kind, limit))

    def mix(self, pool: str) -> tuple[float, float]:
        """Return the mean tokens of the prompts and of the answers in ``pool``, as learned.

        Raises:
            KeyError: there is no such pool.
        """
        state = self._pools[pool]
        output = state.outputs.mean("", None)
        return max(1.0, state.request_tokens.value - output), output

    def longest_output(self, pool: str, limit: int | None, kind: str = "", share: float = 0.9) -> int:
        """Return the tokens that an answer exceeds with a chance of no more than ``1 - share``; else likewise.

        Raises:
            KeyError: there is no such pool.
        """
        if limit is not None and limit <= 0:
            return 0
        return round(self._pools[pool].outputs.quantile(kind, share, limit))

    def view(
        self,
        pool: str,
        now: float,
        places: Sequence[int] | None = None,
        cached: PrefixTokens | None = None,
    ) -> PoolView:
        """Return ``pool`` as it is at ``now`` (seconds).

        Args:
            pool: its name.
            now: the moment.
            places: where the endpoints stand that are asked for, in the order of their declaration; all by default.
            cached: how many tokens of the prompt at hand they have in their caches; none by default.

        Raises:
            KeyError: there is no such pool.
        """
        return self._pools[pool].view(self.ledger, now - self._stale_after, now, places, cached)

    def members(self, pool: str) -> tuple[EndpointSpec, ...]:
        """Return the endpoints of ``pool`` in the order of their declaration; the same tuple until that changes.

        Raises:
            KeyError: there is no such pool.
        """
        return self._pools[pool].spec.endpoints

    def place(self, pool: str, address: str) -> int | None:
        """Return where ``address`` stands among the members of ``pool``; ``None`` when it is none of them.

        Raises:
            KeyError: there is no such pool.
        """
        return self._pools[pool].places.get(address)

    def cached(self, pool: str, prefix: Sequence[int]) -> PrefixMatch:
        """Return which endpoints of ``pool`` probably hold how many blocks of ``prefix``.

        Raises:
            KeyError: there is no such pool.
        """
        return self._pools[pool].prefixes.match(prefix)

    def views(self, now: float) -> tuple[PoolView, ...]:
        """Return all pools as they are at ``now`` (seconds)."""
        return tuple(self.view(name, now) for name in self._pools)

    def image(self) -> FleetImage:
        """Return all of it as plain data."""
        return FleetImage(
            tuple(
                PoolImage(pool.spec, pool.request_tokens.value, pool.outputs.image()) for pool in self._pools.values()
            ),
            tuple(
                MemberImage(
                    address,
                    member.connections.failures,
                    member.connections.state,
                    member.report,
                    member.reported_at,
                    member.own_at_scrape,
                    member.foreign,
                    member.work.rates.image(),
                    tuple(member.prefixes.held(address)) if member.told else (),
                    member.vram,
                )
                for address, member in self._endpoints.items()
            ),
            tuple(self.ledger),
        )

    def restore(self, image: FleetImage, now: float) -> None:
        """Become what ``image`` shows; the leases of its reservations begin anew at ``now`` (seconds).

        Raises:
            ValueError: something is known here already.
        """
        if self._pools or len(self.ledger):
            raise ValueError("a fleet is restored into an empty one")
        self.apply(PoolsDeclared(tuple(pool.spec for pool in image.pools)), now)
        for pool in image.pools:
            state = self._pools[pool.spec.name]
            state.request_tokens.value = pool.request_tokens
            state.outputs.restore(pool.outputs)
        for known in image.members:
            member = self._endpoints[known.address]
            member.connections.failures, member.connections.state = known.failures, known.reachability
            member.report, member.reported_at = known.report, known.reported_at
            member.own_at_scrape, member.foreign = known.own_at_scrape, known.foreign
            member.work.rates.restore(known.rates, known.report.kv_capacity_tokens)
            member.prefixes.resize(known.address, known.report.kv_capacity_tokens)
            member.prefixes.hold(known.address, known.told[::-1], 1)
            member.vram, member.shown = known.vram, None
        for reservation in sorted(image.reservations, key=lambda one: one.reserved_at):
            self._work_on(reservation, reservation.reserved_at)
            self.ledger.reserve(reservation, now)

    def _work_on(self, reservation: Reservation, now: float) -> None:
        """Have its endpoint begin with ``reservation``, which is not in the ledger yet, at ``now`` (seconds)."""
        pool, member = self._pools.get(reservation.pool), self._endpoints.get(reservation.address)
        if member is not None:
            member.shown = None
            if pool is not None and pool.spec.reckons:
                held = self.ledger.inflight(reservation.address).tokens
                member.work.started(reservation, pool.load(member, self.ledger), held, now)

    @singledispatchmethod
    def _apply(self, event: FleetEvent, now: float) -> Iterable[FleetChange]:
        raise TypeError(f"not a fleet event: {event!r}, at {now}")

    @_apply.register
    def _(self, event: PoolsDeclared, now: float) -> Iterable[FleetChange]:  # noqa: ARG002
        before = {name: pool.spec for name, pool in self._pools.items()}
        after = {spec.name: spec for spec in event.pools}
        if list(before.items()) == list(after.items()):
            return
        pools = {name: self._pools.get(name) or PoolState(spec) for name, spec in after.items()}
        endpoints: dict[str, Member] = {}
        most = MAX_BLOCKS // max(1, sum(len(spec.endpoints) for spec in event.pools))
        for spec in event.pools:
            pool = pools[spec.name]
            pool.prefixes.admit((endpoint.address for endpoint in spec.endpoints), most)
            for endpoint in spec.endpoints:
                member = self._endpoints.get(endpoint.address) or Member(endpoint, pool.prefixes)
                member.declare(endpoint, pool.prefixes, told=spec.told)
                endpoints[endpoint.address] = member
            pool.spec = spec
            pool.places = {endpoint.address: place for place, endpoint in enumerate(spec.endpoints)}
            pool.members = tuple(endpoints[endpoint.address] for endpoint in spec.endpoints)
            pool.judge_anew()
        added = tuple(address for address in endpoints if address not in self._endpoints)
        removed = tuple(address for address in self._endpoints if address not in endpoints)
        self._pools, self._endpoints = pools, endpoints
        yield MembershipChanged(added, removed)

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
        member.take(report, foreign_requests(report, own), now)
        before = member.connections.state
        home = next((pool for pool in self._pools.values() if event.address in pool.places), None)
        if report.waiting is not None and home is not None:
            member.work.reported(report.waiting, home.load(member, self.ledger), now)
        if member.connections.succeeded():
            yield self._reachability_changed(member, before, "it answered")

    @_apply.register
    def _(self, event: ScrapeFailed, now: float) -> Iterable[FleetChange]:  # noqa: ARG002
        member = self._endpoints.get(event.address)
        if member is None:
            return
        if event.unreachable:
            member.vram = member.vram.unloaded()
        before = member.connections.state
        changed = member.connections.failed() if event.unreachable else member.connections.succeeded()
        if changed:
            if event.unreachable:
                # Nothing listens there: whatever it is that comes back begins with an empty cache.
                member.presume_empty()
            yield self._reachability_changed(member, before, event.reason)

    def _reachability_changed(self, member: Member, before: Reachability, reason: str) -> ReachabilityChanged:
        member.shown = None
        if Reachability.UNREACHABLE in {before, member.connections.state}:  # all others eject nobody
            for pool in self._pools.values():
                pool.judge_anew()
        return ReachabilityChanged(member.spec.address, member.connections.state, reason)

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
        if pool is not None and member is not None and pool.spec.reckons:
            member.work.ended(
                reservation.id,
                pool.load(member, self.ledger),
                now,
                ttft=event.ttft,
                duration=event.duration,
                output_tokens=event.output_tokens,
                prefilled=None if event.cached_tokens is None else reservation.prompt_tokens - event.cached_tokens,
                failed=event.failed,
            )
        self.ledger.release(reservation.id)
        # No tokens at all is no answer: embeddings have none, and say so, and must not make a chat look short.
        if pool is not None and event.output_tokens:
            pool.outputs.observe(reservation.kind, event.output_tokens)
        yield ReservationReleased(reservation)

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
            member.evidence[event.evidence.source] = (event.evidence, now)
        return ()

    @_apply.register
    def _(self, event: GpuMemoryReported, now: float) -> Iterable[FleetChange]:
        if member := self._endpoints.get(event.address):
            loaded = member.connections.failures == 0 and member.reported_at is not None
            loaded = loaded and now - (member.reported_at or 0.0) <= self._stale_after
            own = self.ledger.inflight(event.address).tokens
            member.vram, member.shown = member.vram.taken(event.memory, own, now, loaded=loaded), None
        return ()


_handlers: dict[type, Callable[[Fleet, FleetEvent, float], Iterable[FleetChange]]] = {}
