"""The control plane: every part of it, put together and run."""

import asyncio
import contextlib
import functools
import importlib.metadata
import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path

from tidegate.config import Config
from tidegate.config_routes import models_served
from tidegate.engines.kv_watch import KvWatch
from tidegate.engines.scraper import Scraper
from tidegate.fleet.events import (
    FleetChange,
    FleetEvent,
    HealthChanged,
    MembershipChanged,
    ReachabilityChanged,
    RequestEnded,
    RequestProgressed,
    RequestReserved,
    ReservationReleased,
    SharesChanged,
    TimePassed,
)
from tidegate.fleet.health import Reachability
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import PoolView
from tidegate.runtime import authorization, kept, kept_endpoints, parts, ports, services, shared_limits, told_caches
from tidegate.runtime.alone import Alone
from tidegate.runtime.certificates import Certificates
from tidegate.runtime.changeover import Changeover
from tidegate.runtime.correlation import Correlation
from tidegate.runtime.decider import Decider
from tidegate.runtime.discovered import Discovered
from tidegate.runtime.discovery_log import DiscoveryLog
from tidegate.runtime.inquiry import Inquiry
from tidegate.runtime.learned_weights import LearnedWeights
from tidegate.runtime.lessons import lesson
from tidegate.runtime.part import Surroundings
from tidegate.runtime.publisher import Publisher
from tidegate.runtime.reload import ConfigFile
from tidegate.runtime.services import BindError
from tidegate.runtime.steering import Steered
from tidegate.runtime.tenants import Tenants
from tidegate.runtime.workers.team import Team
from tidegate.runtime.xds_clients import XdsClients
from tidegate.scheduling import pickers
from tidegate.telemetry import access_log, admin, discovery, status
from tidegate.telemetry.log import event
from tidegate.telemetry.metrics import Metrics
from tidegate.telemetry.output_size import OutputSizes
from tidegate.telemetry.record import RequestRecord
from tidegate.tokens.correction import Corrections
from xds.server import DiscoveryServer

logger = logging.getLogger("tidegate")

WEIGH_SECONDS = 5.0
"""Pause between two looks at what was learned of the endpoints' speed."""

EXPIRY_SECONDS = 1.0
"""Pause between two looks for leases that ran out."""


class ControlPlane:
    """One control plane: its facts, its decisions and its services."""

    def __init__(self, config: Config, file: Path, log_format: str = "text") -> None:
        """Prepare to run ``config``, which came from ``file``; nothing listens and nothing is sent before ``run``.

        Workers, where the configuration has any, log in ``log_format``.
        """
        self._config = config
        self._file = file
        self._started_at = time.monotonic()
        self._unready = {"the token vocabularies are not loaded", "the services do not listen yet"}
        self._correlation = Correlation()
        self._fleet = Fleet(config.limits.lease_seconds, config.scrape.stale_after_seconds)
        self._corrections = Corrections()
        self._sizes = OutputSizes()
        self._metrics = Metrics(self._views, lambda: len(self._fleet.ledger), self._corrections)
        self._deciding: Alone | Team
        waiting_room = None
        self._tenants = Tenants(time.time, self._metrics.registry, shared_limits.made(config, self._metrics.registry))
        if config.control.workers == 1:
            decider = Decider(
                *(self._fleet, self._corrections, self._metrics, self._correlation.new_id, self),
                started_at=int(time.time()),
                till=self._tenants,
            )
            waiting_room, self._deciding = decider.waiting_room, Alone(decider, config, self._tenants)
        else:
            known = (self._fleet, self._corrections, self._metrics, self._tenants)
            self._deciding = Team(*known, self, self._apply, log_format)
        self._scraper = Scraper(
            config.scrape,
            self._apply,
            random.SystemRandom(),
            lambda _, outcome, took: self._metrics.scraped(outcome, took),
        )
        self._discovery = DiscoveryServer(DiscoveryLog(self._metrics), named=authorization.named(config.control.tls))
        self._weights = LearnedWeights()
        self._certificates = Certificates(self._metrics.registry, self._renewed)
        self._publisher = Publisher(self._discovery, self._weighed, time.monotonic, self._certificates.material)
        self._told = KvWatch(self._apply, self._metrics.kv_events, random.SystemRandom())
        self._watched = ConfigFile(file, config, self._adjusted)
        found = kept_endpoints.remembered(config.control.state_dir)
        remembered = {(name, pool.kind): pool.found for name, pool in found.items()}
        self._discovered = Discovered(lambda: self._declare(self._config), remembered=remembered)
        self._metrics.registry.register(discovery.DiscoveryCollector(self._discovered.reports))
        known_to_all = (self._fleet, self._apply, self._metrics, config, self._watched.readjust, waiting_room)
        self._parts = (
            self._certificates,
            *parts.made(Surroundings(*known_to_all, self._tenants.shared, self._certificates.to_engines)),
            shared_limits.keeping(self._tenants, config),
            *(
                kept_endpoints.KeptEndpoints(self._discovered, config),
                Steered(self._discovered, self._watched.readjust, config.control.state_dir),
            ),
            XdsClients(self._discovery, self._metrics),
        )
        self._config = self._adjusted(config)
        self._changeover = Changeover(
            *(self._deciding, self._declare, self._ask_for, self._discovered.synced),
            lambda: self._discovery.up_to_date,
        )

    def reload(self) -> None:
        """Read the configuration file again (SIGHUP)."""
        self._watched.reload()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set.

        Raises:
            BindError: a port could not be bound.
            ExceptionGroup: of a ``VocabularyError``: a vocabulary is missing.
        """
        # Asked beforehand because gRPC would write a line of its own, and not say which of the ports it is.
        if taken := ports.conflicts(ports.of_control_plane(self._config)):
            raise BindError("\n".join(taken))
        _prepare(self._config.control.state_dir)
        async with contextlib.AsyncExitStack() as listening:
            await listening.enter_async_context(self._deciding.starting(self._config.control))
            await listening.enter_async_context(self._discovered.running())
            self._discovered.follow(self._config)
            await self._discovered.synced()
            # In this order: Envoys that are waiting ask at once, and an unknown model would be a refusal.
            self._take_over(self._watched.adjusted())
            await self._listen(listening)
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self._scraper.run()),
                    tasks.create_task(self._told.run()),
                    tasks.create_task(self._publish()),
                    tasks.create_task(self._expire()),
                    tasks.create_task(self._weigh()),
                    tasks.create_task(self._watched.watch(self._reloaded, self._refused)),
                    tasks.create_task(self._deciding.run()),
                    *(tasks.create_task(part.run()) for part in self._parts),
                ]
                stopped = tasks.create_task(stop.wait())
                starting = tasks.create_task(self._deciding.ready(self._config))
                running.append(starting)
                await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not stopped.done():
                    starting.result()
                    self._unready.clear()
                    event(logger, "ready", pools=len(self._config.pools), file=str(self._file))
                await stopped
                event(logger, "stopping")
                for task in running:
                    task.cancel()

    # -- what comes in

    def _apply(self, fact: FleetEvent) -> None:
        """Take in one fact, and tell whom it concerns."""
        now = time.monotonic()
        self._deciding.tell(fact, now)
        for change in self._fleet.apply(fact, now):
            self._tell(change)

    def _tell(self, change: FleetChange) -> None:
        for part in self._parts:
            part.changed(change)
        match change:
            case MembershipChanged(added, removed):
                self._publisher.changed()
                if added or removed:
                    event(logger, "endpoints changed", added=", ".join(added), removed=", ".join(removed))
            case HealthChanged() | SharesChanged():
                self._publisher.changed()
            case ReachabilityChanged(address, reachability, reason):
                level = logging.WARNING if reachability is Reachability.UNREACHABLE else logging.INFO
                event(logger, f"endpoint {reachability.value}", level=level, address=address, reason=reason)
            case ReservationReleased(reservation, expired):
                self._correlation.forget(reservation.id)
                self._tenants.withdraw(reservation.id)
                if expired:
                    self._metrics.reservation_expired()
                    level, where = logging.WARNING, reservation.address
                    event(logger, "reservation expired", level=level, id=reservation.id, address=where)

    def reserved(self, event: RequestReserved) -> None:
        """Take note of a reservation (see ``Journal``)."""
        self._correlation.remember(event.reservation.id)

    def delivered(self, reservation_id: str) -> None:
        """Take note that it outlives its exchange, unless its request is over already."""
        if self._correlation.came_too_late(reservation_id):
            # Not at once: whoever tells us of it is told nothing meanwhile.
            asyncio.get_running_loop().call_soon(self._apply, RequestEnded(reservation_id))

    def abandoned(self, reservation_id: str) -> None:
        """Release it."""
        self._apply(RequestEnded(reservation_id))

    def _request_ended(self, record: RequestRecord) -> None:
        record = self._sizes.settled(record)
        self._metrics.request_ended(record)
        for part in self._parts:
            part.ended(record)
        taught = lesson(record)
        if taught and self._corrections.learn(*taught):
            self._deciding.teach(taught)
        if record.reservation:
            self._tenants.ended(record)
            self._apply(
                RequestEnded(
                    record.reservation,
                    record.output_tokens,
                    ttft=record.engine_ttft_seconds,
                    duration=record.engine_seconds,
                    cached_tokens=record.usage.cached_tokens,
                    failed=record.failed_by_pick,
                    ending=record.ending_at_pick,
                    elsewhere=record.elsewhere,
                )
            )
        # Another decision on it than the one that Envoy followed, if there is one, came to nothing.
        for reservation in self._correlation.ended(record.request_id):
            self._apply(RequestEnded(reservation))

    def _request_progressed(self, record: RequestRecord) -> None:
        if record.reservation:
            self._tenants.progressed(record.reservation)
            self._apply(RequestProgressed(record.reservation))

    def _weighed(self) -> tuple[PoolView, ...]:
        """Return all pools with the weights that Envoy is to be told."""
        learning = {pool.name for pool in self._config.pools if pickers.learns(pool.policy)}
        return self._weights.applied(self._views(), learning, self._fleet.mix)

    async def _weigh(self) -> None:
        """Have weights that were learned told, for ever."""
        while True:
            await asyncio.sleep(WEIGH_SECONDS)
            if any(pickers.learns(pool.policy) for pool in self._config.pools):
                self._publisher.changed()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            self._apply(TimePassed())
            for change in self._fleet.expire(now := time.monotonic()):
                self._deciding.tell(RequestEnded(change.reservation.id), now)
                self._tell(change)

    # -- configuration

    def _adjusted(self, config: Config) -> Config:
        return functools.reduce(lambda adjusted, part: part.adjusted(adjusted), self._parts, config)

    def _take_over(self, config: Config) -> None:
        """Make ``config`` the one in force, here and in Envoy."""
        self._declare(config)
        self._deciding.configure(config)

    def _declare(self, config: Config) -> None:
        """Make everything that ``config`` names known, here and then to Envoy."""
        self._discovered.follow(config)
        declared = self._discovered.declared(config)
        self._config = config
        self._metrics.configure(declared.pools, models_served(config.routes))
        self._sizes.keep(pool.name for pool in config.pools)
        self._apply(declared)
        self._scraper.watch(self._discovered.engines(declared), self._certificates.to_engines(config, declared))
        self._told.watch(told_caches.sources(config, declared))
        for part in self._parts:
            part.follow(config, declared)
        # Not before: an Envoy that has endpoints would lose those that are not found yet.
        if self._discovered.is_whole:
            self._publisher.publish(config)

    async def _publish(self) -> None:
        """Publish what changes, for ever, once it is known who is there."""
        await self._discovered.whole()
        self._publisher.changed()
        await self._publisher.run(lambda: self._config)

    async def _reloaded(self, config: Config) -> None:
        """Take over ``config`` while requests run."""
        await self._changeover.make(self._config, config)
        self._metrics.config_reloaded(taken=True)

    def _ask_for(self, config: Config) -> None:
        """Have Envoy send what ``config`` needs, before it is decided by."""
        self._config = config
        self._publisher.publish(config)

    def _renewed(self) -> None:
        self._publisher.renewed()

    def _refused(self, reason: str) -> None:  # noqa: ARG002  it is in the log
        self._metrics.config_reloaded(taken=False)

    # -- what goes out

    def _missing(self) -> Sequence[str]:
        """Return the sources that are waited for before anything is published, and the first tries of endpoints."""
        return self._scraper.untried() if self._discovered.is_whole else self._discovered.unready()

    def _views(self) -> tuple[PoolView, ...]:
        return self._fleet.views(time.monotonic())

    def _status(self) -> status.JsonObject:
        return status.describe(
            self._views(),
            version=importlib.metadata.version("tidegate"),
            config_file=str(self._file),
            uptime_seconds=time.monotonic() - self._started_at,
            reservations=len(self._fleet.ledger),
            kv_events=told_caches.described(self._told.standings()),
            discovery=discovery.describe(self._discovered.reports()),
            workers=self._deciding.status(),
            sharing=self._tenants.sharing(),
        )

    def _inquiry(self) -> Inquiry:
        if isinstance(self._deciding, Alone):
            return Inquiry.of(self._deciding.decider, routed=True)
        return Inquiry.beside_workers(self._fleet, lambda: self._config)

    async def _listen(self, listening: contextlib.AsyncExitStack) -> None:
        control = self._config.control
        log = access_log.Intake(self._request_ended, self._request_progressed, self._metrics.access_log_malformed)
        app = admin.make_app(
            self._metrics.render,
            lambda: sorted({*self._unready, *self._deciding.unready(), *self._missing()}),
            self._status,
            self._tenants.describe,
            self._inquiry().answer,
            {path: page for part in self._parts for path, page in part.pages().items()},
            {path: action for part in self._parts for path, action in part.actions().items()},
        )
        await listening.enter_async_context(services.site(app, self._config.admin.address, self._config.admin.port))
        await listening.enter_async_context(
            services.grpc_server(
                *(control.address, control.xds_port),
                (*self._discovery.handlers(), log.handler()),
                services.FAREWELL_SECONDS,
                tls=control.tls,
            )
        )
        for part in self._parts:
            await listening.enter_async_context(part.listening())
        await listening.enter_async_context(self._deciding.serving(control, {access_log.PATH: log.reader}))
        # Called first when all this ends: a server that stops waits for its open streams, and then breaks them off.
        listening.callback(self._discovery.close)
        self._unready.discard("the services do not listen yet")


def _prepare(state_dir: str | None) -> None:
    """Have the folder there for what has to outlive a restart.

    Raises:
        BindError: it cannot be used; said now, and not when something is lost.
    """
    if state_dir is None:
        return
    try:
        kept.prepare(state_dir)
    except OSError as error:
        raise BindError(f"cannot use the folder {state_dir} (control.state_dir): {error.strerror}") from None
