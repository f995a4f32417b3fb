"""The endpoint picker: decisions for a gateway that owns Envoy's configuration. No discovery, and no access log."""

import asyncio
import contextlib
import importlib.metadata
import logging
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

from extproc.health import Health
from extproc.picker_exchange import PickerExchange
from extproc.transport import SERVICE
from tidegate.config import Config
from tidegate.engines.kv_watch import KvWatch
from tidegate.engines.scraper import Scraper
from tidegate.fleet.events import (
    FleetChange,
    FleetEvent,
    MembershipChanged,
    ReachabilityChanged,
    RequestEnded,
    RequestReserved,
    ReservationReleased,
    TimePassed,
)
from tidegate.fleet.health import Reachability
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import PoolView
from tidegate.runtime import ports, services, told_caches
from tidegate.runtime.certificates import Certificates
from tidegate.runtime.correlation import Correlation
from tidegate.runtime.decider import Decider
from tidegate.runtime.discovered import Discovered
from tidegate.runtime.health_events import HealthEvents
from tidegate.runtime.inquiry import Inquiry
from tidegate.runtime.lessons import lesson
from tidegate.runtime.picked import PickedRequests
from tidegate.runtime.reload import ConfigFile
from tidegate.runtime.services import BindError
from tidegate.runtime.steering import Steered
from tidegate.telemetry import admin, discovery, status
from tidegate.telemetry.log import event
from tidegate.telemetry.metrics import Metrics
from tidegate.telemetry.record import RequestRecord
from tidegate.tokens.correction import Corrections

logger = logging.getLogger("tidegate")

RENEWAL_SECONDS = 5.0
"""Pause between two renewals of what is with the gateway; a lease is 25 seconds at least."""

TICK_SECONDS = 1.0
"""Pause between two looks at what holds for a time."""

HEALTH_NAMES = ("", "liveness", "readiness", SERVICE)
"""By which names gateways and probes ask for health."""


class PickerPlane:
    """One endpoint picker: its facts, its decisions and its services."""

    def __init__(self, config: Config, file: Path) -> None:
        """Prepare to run ``config``, which came from ``file``; nothing listens and nothing is sent before ``run``."""
        self._config = config
        self._file = file
        self._started_at = time.monotonic()
        self._unready = {"the services do not listen yet"}
        self._fleet = Fleet(config.limits.lease_seconds, config.scrape.stale_after_seconds)
        self._corrections = Corrections()
        self._metrics = Metrics(self._views, lambda: len(self._fleet.ledger), self._corrections)
        self._health = HealthEvents(self._fleet, self._metrics)
        self._decider = Decider(
            *(self._fleet, self._corrections, self._metrics, Correlation().new_id, self),
            started_at=int(time.time()),
            queueing=False,
        )
        self._picked = PickedRequests(self._apply, self._request_ended)
        self._scraper = Scraper(
            config.scrape,
            self._apply,
            random.SystemRandom(),
            lambda _, outcome, took: self._metrics.scraped(outcome, took),
        )
        self._certificates = Certificates(self._metrics.registry, lambda: None)
        self._told = KvWatch(self._apply, self._metrics.kv_events, random.SystemRandom())
        self._watched = ConfigFile(file, config, self._adjusted)
        self._discovered = Discovered(self._declare)
        self._steered = Steered(self._discovered, self._watched.readjust)
        self._metrics.registry.register(discovery.DiscoveryCollector(self._discovered.reports))

    def reload(self) -> None:
        """Read the configuration file again (SIGHUP)."""
        self._watched.reload()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set, and then until the answers that are running have ended.

        Raises:
            BindError: a port could not be bound.
            ExceptionGroup: of a ``VocabularyError``: a vocabulary is missing.
        """
        if taken := ports.conflicts(ports.of_picker(self._config)):
            raise BindError("\n".join(taken))
        async with contextlib.AsyncExitStack() as listening:
            listening.callback(self._decider.close)
            await listening.enter_async_context(self._discovered.running())
            self._take_over(self._config)
            app = admin.make_app(
                self._metrics.render,
                lambda: sorted({*self._unready, *self._discovered.unready(), *self._scraper.untried()}),
                self._status,
                explain=Inquiry.of(self._decider, routed=False).answer,
                more=self._health.pages(),
            )
            await listening.enter_async_context(services.site(app, self._config.admin.address, self._config.admin.port))
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self._scraper.run()),
                    tasks.create_task(self._told.run()),
                    tasks.create_task(self._certificates.run()),
                    tasks.create_task(self._renew()),
                    tasks.create_task(self._tick()),
                    tasks.create_task(self._watched.watch(self._reloaded, self._refused)),
                ]
                await self._decider.warm(self._config)
                await self._discovered.synced()
                self._take_over(self._watched.adjusted())
                async with self._serving():
                    self._unready.clear()
                    event(logger, "ready", pools=len(self._config.pools), file=str(self._file))
                    await stop.wait()
                    self._unready.add("it is being stopped")
                    event(logger, "stopping", inflight=len(self._fleet.ledger))
                for task in running:
                    task.cancel()

    @contextlib.asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        """Serve the gateway; only now, and health last, so that whoever is healthy can also decide."""
        control, picker = self._config.control, self._config.picker
        async with contextlib.AsyncExitStack() as listening:
            await listening.enter_async_context(
                services.ext_proc(
                    control,
                    control.ext_proc_port,
                    self._decider.desk,
                    begin=lambda desk: PickerExchange(desk, self._picked),
                    health=Health(HEALTH_NAMES),
                    grace=picker.drain_seconds,
                )
            )
            if picker.health_port is not None:
                farewell = services.FAREWELL_SECONDS
                health = services.grpc_server(control.address, picker.health_port, (), farewell, Health(HEALTH_NAMES))
                await listening.enter_async_context(health)
            yield

    # -- what comes in

    def _apply(self, fact: FleetEvent) -> None:
        """Take in one fact, and tell whom it concerns."""
        for change in self._fleet.apply(fact, time.monotonic()):
            self._tell(change)

    def _tell(self, change: FleetChange) -> None:
        self._health.changed(change)
        match change:
            case MembershipChanged(added, removed):
                if added or removed:
                    event(logger, "endpoints changed", added=", ".join(added), removed=", ".join(removed))
            case ReachabilityChanged(address, reachability, reason):
                level = logging.WARNING if reachability is Reachability.UNREACHABLE else logging.INFO
                event(logger, f"endpoint {reachability.value}", level=level, address=address, reason=reason)
            case ReservationReleased(expired=True):
                self._metrics.reservation_expired()

    def reserved(self, event: RequestReserved) -> None:
        """Take note of a reservation (see ``Journal``); its stream says what becomes of it."""

    def delivered(self, reservation_id: str) -> None:
        """Take note that the gateway was told."""

    def abandoned(self, reservation_id: str) -> None:
        """Release it."""
        self._apply(RequestEnded(reservation_id))

    def _request_ended(self, record: RequestRecord) -> None:
        self._metrics.request_ended(record)
        if taught := lesson(record):
            self._corrections.learn(*taught)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEWAL_SECONDS)
            self._picked.renew()
            for change in self._fleet.expire(time.monotonic()):
                self._tell(change)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._apply(TimePassed())

    # -- configuration

    def _take_over(self, config: Config) -> None:
        """Make ``config`` the one in force."""
        if config.tenants:
            event(logger, "nobody asks for tenants' keys: that is for the gateway to do", level=logging.ERROR)
        self._config = config
        self._discovered.follow(config)
        self._declare()
        self._decider.configure(config)
        self._picked.configure(config)

    def _adjusted(self, config: Config) -> Config:
        return self._steered.adjusted(config)

    def _declare(self) -> None:
        """Make all endpoints known, those listed and those found."""
        declared = self._discovered.declared(self._config)
        self._metrics.configure(declared.pools)
        self._health.follow(self._config, declared)
        self._apply(declared)
        self._certificates.follow(self._config, declared)
        secured = self._certificates.to_engines(self._config, declared)
        self._scraper.watch(self._discovered.engines(declared), secured)
        self._told.watch(told_caches.sources(self._config, declared))

    async def _reloaded(self, config: Config) -> None:
        await self._decider.prompts.load(config)
        self._take_over(config)
        self._metrics.config_reloaded(taken=True)

    def _refused(self, reason: str) -> None:  # noqa: ARG002  it is in the log
        self._metrics.config_reloaded(taken=False)

    # -- what goes out

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
        )
