"""Asks every endpoint how busy it is, again and again.

Each endpoint has a task of its own, so that one which hangs delays no other, and the pauses are jittered, so that the
endpoints of a fleet are not all asked in the same instant. What was learned goes out as ``FleetEvent``s.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import aiohttp

from tidegate import addresses
from tidegate.certificates import Outgoing
from tidegate.config_sections import Scrape
from tidegate.engines import dialects, fetch
from tidegate.engines.dialect import Dialect
from tidegate.engines.exposition import Page, parse
from tidegate.engines.outcome import Observer, Outcome, ScrapeError, unobserved
from tidegate.engines.reading import read
from tidegate.fleet.events import FleetEvent, LoadReported, ScrapeFailed, ScrapeStarted
from tidegate.fleet.load import EngineReport

JITTER = 0.1
"""Share of the interval by which a pause may be longer or shorter."""

FIRST_SCRAPE_WITHIN = 0.2
"""Seconds over which the first scrapes of new endpoints are spread, where the interval is not shorter still."""

TRIED_WITHIN = 2.0
"""Seconds that a start waits, at the most, for each endpoint to be tried once: who refuses connections is known then,
and gets no request."""

FAULTS_SAID_EVERY = 60.0
"""Seconds between two log lines about faults of our own, which strike many endpoints at once and come and go: out of
file descriptors, 600 endpoints wrote 300 lines a second (measured)."""

_LOG = logging.getLogger("tidegate.engines")


@dataclass(slots=True)
class _Target:
    """One endpoint that is being watched."""

    address: str
    engine: str
    dialect: Dialect
    tls: Outgoing | None = None
    before: Page | None = None
    said: Outcome | None = None
    tried: bool = False


@dataclass(frozen=True, slots=True)
class _Running:
    """What exists while ``run`` does."""

    tasks: asyncio.TaskGroup
    session: aiohttp.ClientSession


class Scraper:
    """Watches a set of endpoints and says what their engines report."""

    def __init__(
        self,
        settings: Scrape,
        emit: Callable[[FleetEvent], None],
        rng: random.Random,
        observe: Observer = unobserved,
    ) -> None:
        """Nothing happens until ``run``.

        Args:
            settings: interval, deadline and size of a scrape.
            emit: takes the events, in the order in which things happened; called in the loop that ``run`` runs in.
            rng: spreads the scrapes over time.
            observe: takes note of every scrape, after its events.
        """
        self._settings = settings
        self._emit = emit
        self._rng = rng
        self._observe = observe
        self._targets: dict[str, _Target] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._running: _Running | None = None
        self._fault_said_at: float | None = None
        self._tries_until: float | None = None

    def watch(self, targets: Mapping[str, str], secured: Mapping[str, Outgoing] = MappingProxyType({})) -> None:
        """Watch exactly ``targets``, the names of the engines by address (``ip:port``); those ``secured`` over TLS.

        An endpoint that stays is not disturbed; nothing more is emitted for one that is gone. To be called before
        ``run``, or in its loop.

        Raises:
            KeyError: there is no dialect of that name; the set is then as before.
        """
        known = {engine: dialects.dialect(engine) for engine in set(targets.values())}
        for address in [*self._targets]:
            before = self._targets[address]
            if targets.get(address) != before.engine or secured.get(address) is not before.tls:
                self._forget(address)
        for address, engine in targets.items():
            if address not in self._targets:
                self._targets[address] = target = _Target(address, engine, known[engine], secured.get(address))
                self._start(target)

    def untried(self) -> Sequence[str]:
        """Return what a start still waits for: endpoints that were not tried once, for ``TRIED_WITHIN`` at the most."""
        if self._tries_until is None:
            return ()
        waits = asyncio.get_running_loop().time() < self._tries_until
        if waits and (number := sum(not target.tried for target in self._targets.values())):
            return (f"{number} endpoints were not tried yet",)
        self._tries_until = None  # for those that join later nobody waits
        return ()

    async def run(self) -> None:
        """Scrape until cancelled."""
        self._tries_until = asyncio.get_running_loop().time() + TRIED_WITHIN
        async with fetch.open_session() as session, asyncio.TaskGroup() as tasks:
            self._running = _Running(tasks, session)
            try:
                for target in self._targets.values():
                    self._start(target)
                await asyncio.get_running_loop().create_future()
            finally:
                self._running = None
                self._tasks.clear()

    def _start(self, target: _Target) -> None:
        if self._running is not None:
            task = self._running.tasks.create_task(self._follow(target, self._running.session))
            self._tasks[target.address] = task

    def _forget(self, address: str) -> None:
        del self._targets[address]
        if task := self._tasks.pop(address, None):
            task.cancel()

    async def _follow(self, target: _Target, session: aiohttp.ClientSession) -> None:
        await asyncio.sleep(first_pause(self._settings.interval_seconds, self._rng))
        while True:
            try:
                await self._scrape(target, session)
            except Exception as error:  # noqa: BLE001  not even whoever takes the events may end the scrapes
                self._log(target, Outcome.FAULT, _unexpected(error).reason)
            target.tried = True
            await asyncio.sleep(pause(self._settings.interval_seconds, self._rng))

    async def _scrape(self, target: _Target, session: aiohttp.ClientSession) -> None:
        clock = asyncio.get_running_loop().time
        started = clock()
        self._emit(ScrapeStarted(target.address))
        event: FleetEvent | None
        try:
            report = await self._report(target, session)
        except Exception as error:  # noqa: BLE001  a page must not be able to end its own scrapes
            failure = error if isinstance(error, ScrapeError) else _unexpected(error)
            outcome, reason = failure.outcome, failure.reason
            # A fault of our own says nothing of the endpoint, neither that it lives nor that it does not.
            event = (
                ScrapeFailed(target.address, unreachable=outcome is Outcome.UNREACHABLE, reason=reason)
                if outcome is not Outcome.FAULT
                else None
            )
        else:
            says_nothing = (
                target.dialect.metrics_path is not None and replace(report, started_at=None) == EngineReport()
            )
            outcome, reason = (Outcome.NO_SERIES, "no usable series") if says_nothing else (Outcome.OK, "")
            event = LoadReported(target.address, report)
        if event is not None:
            self._emit(event)
        self._observe(target.address, outcome.value, clock() - started)
        # Last, so that a fault in what was told above is the only state that is logged.
        self._log(target, outcome, reason)

    async def _report(self, target: _Target, session: aiohttp.ClientSession) -> EngineReport:
        timeout = self._settings.timeout_seconds
        path = target.dialect.metrics_path
        if path is None:
            host, port = addresses.split(target.address)
            await fetch.connect(host, port, timeout_seconds=timeout)
            return EngineReport()
        url = f"{'http' if target.tls is None else 'https'}://{target.address}{path}"
        most = self._settings.max_bytes
        text = await fetch.fetch(session, url, timeout_seconds=timeout, max_bytes=most, tls=target.tls)
        page = parse(text, target.dialect.wanted)
        if page.truncated:
            raise ScrapeError(Outcome.TOO_LARGE, "the page has too many lines or series")
        if page.foreign and not page.samples:
            raise ScrapeError(Outcome.UNREADABLE, "the answer is not a metrics page")
        report, target.before = read(target.dialect, page, target.before), page
        return report

    def _log(self, target: _Target, outcome: Outcome, reason: str) -> None:
        """Write one line when ``outcome`` is another than the last time, but none for a first success.

        A fault of our own is no state of the endpoint, and is said for all of them together.
        """
        if outcome is Outcome.FAULT:
            now = asyncio.get_running_loop().time()
            if self._fault_said_at is not None and now - self._fault_said_at < FAULTS_SAID_EVERY:
                return
            self._fault_said_at = now
        else:
            before, target.said = target.said, outcome
            if outcome is before or (outcome is Outcome.OK and before is None):
                return
        level = logging.INFO if outcome is Outcome.OK else logging.WARNING
        fields = {"address": target.address, "engine": target.engine, "outcome": outcome.value, "reason": reason}
        _LOG.log(level, "scrape", extra={"fields": fields})


def first_pause(interval: float, rng: random.Random) -> float:
    """Return how long to wait before the first scrape of an endpoint, in seconds like ``interval``."""
    return rng.random() * min(interval, FIRST_SCRAPE_WITHIN)


def pause(interval: float, rng: random.Random) -> float:
    """Return how long to wait between two scrapes, in seconds like ``interval``."""
    return interval * (1 + JITTER * (2 * rng.random() - 1))


def _unexpected(error: Exception) -> ScrapeError:
    _LOG.debug("scrape went wrong", exc_info=error)
    return ScrapeError(Outcome.FAULT, f"unexpected {type(error).__name__}")
