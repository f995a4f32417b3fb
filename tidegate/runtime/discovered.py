"""The endpoints that are discovered: sources followed, and their pools declared anew when they change."""

import asyncio
import contextlib
import dataclasses
import functools
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from tidegate.config import Config
from tidegate.config_discovery import Discovery
from tidegate.discovery import static
from tidegate.discovery.allowed import allows, why_not
from tidegate.discovery.contract import Backoff, Found, News, Reset, Source, Steered, Steering
from tidegate.discovery.held import Held, LeftOut, Rules, Stage
from tidegate.discovery.sources import source
from tidegate.fleet.events import PoolsDeclared
from tidegate.telemetry.discovery import SourceReport
from tidegate.telemetry.log import event

logger = logging.getLogger("tidegate.discovery")

DEBOUNCE_SECONDS = 0.1
"""How long changes are gathered before they count, at least: a change waits, however many follow it."""

SHARE = 0.1
"""The share of the time that may go into declaring changes; one of 5,000 endpoints takes 0.08 s (measured)."""

MAX_DEBOUNCE_SECONDS = 10.0

ASK_EVERY_SECONDS = 1.0
"""Between two requests for a pass to the same source."""

SYNC_SECONDS = 2.0
"""How long starts and reloads wait for sources' first complete passes; requests wait meanwhile (three seconds)."""

SourceMaker = Callable[[Discovery, random.Random], Source]


@dataclasses.dataclass(slots=True)
class _Followed:
    """One source that is followed."""

    pool: str
    settings: Discovery
    held: Held
    asked: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    asked_at: float = float("-inf")
    stage: Stage = Stage.WAITING
    left_out: tuple[LeftOut, ...] = ()
    steering: Steering | None = None
    unsteered: str = ""
    task: asyncio.Task[None] | None = None


class Discovered:
    """What the sources of all pools say, together with what the configuration lists.

    Attributes:
        steered: called when ``steering`` would return something else.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        make: SourceMaker = source,
        remembered: Mapping[tuple[str, str], tuple[Found, ...]] = MappingProxyType({}),
    ) -> None:
        """Call ``changed`` when ``declared`` would return something else; ``clock`` gives seconds, monotonic.

        What is ``remembered`` of a pool's source of a kind, from before a restart, goes on until that source is read.
        """
        self._remembered = remembered
        self.steered: Callable[[], None] = _nobody
        self._changed = changed
        self._clock = clock
        self._make = make
        self._rng = random.SystemRandom()
        self._followed: dict[str, _Followed] = {}
        self._engines: dict[str, str] = {}
        self._clashes: frozenset[str] = frozenset()
        self._tasks: asyncio.TaskGroup | None = None
        self._news = asyncio.Event()
        self._whole = asyncio.Event()
        self._read = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the sources as long as the block runs."""
        failure = None
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            settling = tasks.create_task(self._settle_for_ever())
            for followed in self._followed.values():
                self._start(followed)
            try:
                yield
            except Exception as error:  # noqa: BLE001  the block's own, which a group would wrap
                failure = error
            finally:
                self._tasks = None
                settling.cancel()
                for followed in self._followed.values():
                    _stop(followed)
        if failure is not None:
            raise failure

    def follow(self, config: Config) -> None:
        """Follow exactly the sources of ``config``; of one that is described otherwise now, what it said goes on."""
        wanted = {pool.name: pool.discovery for pool in config.pools if pool.discovery is not None}
        for pool in [*self._followed]:
            if pool not in wanted:
                _stop(self._followed.pop(pool))
        for pool, settings in wanted.items():
            before = self._followed.get(pool)
            if before is not None and before.settings == settings:
                continue
            if before is not None:
                _stop(before)
            bounds = settings.max_shrink, settings.hold_seconds, settings.lingers
            rules = Rules(allows(settings.allow), *bounds, why_not(settings.allow))
            known = before.held.endpoints if before else self._remembered.get((pool, settings.kind), ())
            followed = _Followed(pool, settings, Held(rules, known), steering=before.steering if before else None)
            self._followed[pool] = followed
            self._start(followed)
        self._look_whether_whole()

    def declared(self, config: Config) -> PoolsDeclared:
        """Return the pools of ``config`` with all their endpoints, listed and found.

        An address belongs to one pool: to that which lists it, else to the first that found it.
        """
        listed = static.declared(config)
        if not self._followed:
            self._engines = {}
            return listed
        taken = {endpoint.address for pool in listed.pools for endpoint in pool.endpoints}
        engines: dict[str, str] = {}
        clashes: set[str] = set()
        pools = []
        for pool in listed.pools:
            endpoints = [*pool.endpoints]
            for found in self._found(pool.name):
                address = found.endpoint.address
                if address in taken or any(one.is_at(address) for one in config.listeners):
                    clashes.add(address)
                    continue
                taken.add(address)
                endpoints.append(found.endpoint)
                if found.engine:
                    engines[address] = found.engine
            pools.append(dataclasses.replace(pool, endpoints=tuple(endpoints)))
        if clashes - self._clashes:
            first = min(clashes - self._clashes)
            event(logger, "endpoints found twice are left out", level=logging.WARNING, count=len(clashes), first=first)
        self._engines, self._clashes = engines, frozenset(clashes)
        return PoolsDeclared(tuple(pools))

    def engines(self, declared: PoolsDeclared) -> dict[str, str]:
        """Return the dialect of each endpoint's metrics in what was ``declared`` last, by address."""
        return {
            endpoint.address: self._engines.get(endpoint.address, pool.engine)
            for pool in declared.pools
            for endpoint in pool.endpoints
        }

    def unready(self) -> Sequence[str]:
        """Return what is still waited for: each source's first complete pass."""
        return [
            f"the {one.settings.kind} source of pool {one.pool} has not been read yet"
            for one in self._followed.values()
            if not one.held.ready
        ]

    async def whole(self) -> None:
        """Wait until every source has made a complete pass or is remembered; later ones are not waited for."""
        await self._whole.wait()

    async def read(self) -> None:
        """Wait until every source has made a complete pass."""
        await self._read.wait()

    def found(self) -> dict[str, tuple[str, tuple[Found, ...]]]:
        """Return by pool the kind of its source, and what is held to be true of that."""
        return {name: (one.settings.kind, one.held.endpoints) for name, one in self._followed.items()}

    def steering(self) -> dict[str, Steering]:
        """Return what sources say of the requests to their pools, by pool."""
        return {name: one.steering for name, one in self._followed.items() if one.steering is not None}

    @property
    def is_whole(self) -> bool:
        """Whether that has come about."""
        return self._whole.is_set()

    async def synced(self, seconds: float = SYNC_SECONDS) -> None:
        """Wait for the first complete passes that are still to come, ``seconds`` at the most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.unready():  # noqa: ASYNC110  short waits at starts and reloads alone
                    await asyncio.sleep(0.02)

    def reports(self) -> Iterator[SourceReport]:
        """Yield what is to be counted of each source."""
        now = self._clock()
        for one in self._followed.values():
            held = one.held
            age = None if held.good_at is None else now - held.good_at
            yield SourceReport(
                *(one.pool, one.settings.kind, len(held.endpoints), held.refused, held.errors, age, held.stage.value),
                *(held.reason, held.left_out),
            )

    def _found(self, pool: str) -> Iterable[Found]:
        followed = self._followed.get(pool)
        return followed.held.endpoints if followed is not None else ()

    # -- the sources

    def _start(self, followed: _Followed) -> None:
        if self._tasks is not None:
            followed.task = self._tasks.create_task(self._run(followed))

    async def _run(self, followed: _Followed) -> None:
        """Run the source for ever: not even a fault in it ends it."""
        backoff = Backoff(self._rng)
        while True:
            tell = functools.partial(self._take, followed)
            try:
                await self._make(followed.settings, self._rng).run(tell, followed.asked)
            except Exception as error:  # noqa: BLE001  whatever a directory sends
                event(logger, "a source went wrong", level=logging.ERROR, error=error, pool=followed.pool)
            await asyncio.sleep(backoff.failed())

    def _take(self, followed: _Followed, news: News) -> None:
        if self._followed.get(followed.pool) is not followed:
            return
        if isinstance(news, Steered):
            self._steer(followed, news)
            return
        first = not followed.held.ready and isinstance(news, Reset)
        followed.held.take(news, self._clock())
        if first:
            self._settle()
        self._news.set()

    def _steer(self, followed: _Followed, news: Steered) -> None:
        if news.reason not in {"", followed.unsteered}:
            what, level = "steering cannot be read", logging.WARNING
            event(logger, what, level=level, pool=followed.pool, reason=news.reason)
        followed.unsteered = news.reason
        if news.steering is not None and news.steering != followed.steering:
            followed.steering = news.steering
            objectives, rewrites = map(len, news.steering)
            event(logger, "steering read", pool=followed.pool, objectives=objectives, rewrites=rewrites)
            self.steered()

    async def _settle_for_ever(self) -> None:
        took = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), self._pause())
            if self._news.is_set():
                await asyncio.sleep(min(max(DEBOUNCE_SECONDS, took / SHARE), MAX_DEBOUNCE_SECONDS))
                self._news.clear()
            began = time.perf_counter()
            self._settle()
            took = time.perf_counter() - began

    def _pause(self) -> float | None:
        """Return how many seconds there is nothing to do without news; ``None`` for ever."""
        due = [at for one in self._followed.values() if (at := one.held.due()) is not None]
        # A source that is asked and does not answer is asked again, but not without a pause.
        return max(min(due) - self._clock(), ASK_EVERY_SECONDS / 4) if due else None

    def _settle(self) -> None:
        now, changed = self._clock(), False
        for one in self._followed.values():
            changed |= one.held.settle(now)
            if one.held.asks(now) and now - one.asked_at >= ASK_EVERY_SECONDS:
                one.asked_at = now
                one.asked.set()
            self._say(one)
        if changed:
            self._changed()
        self._look_whether_whole()

    def _look_whether_whole(self) -> None:
        """Note whether something is known of every source now, and whether every one was read."""
        if not self.unready():
            self._read.set()
        if all(one.held.ready or one.held.endpoints for one in self._followed.values()):
            self._whole.set()

    def _say(self, one: _Followed) -> None:
        """Log that a source is in another state than before, or says others than before that are left out."""
        if one.held.left_out != one.left_out:
            one.left_out = one.held.left_out
            if one.left_out:
                what, reasons = "endpoints that a source says are left out", {reason for _, reason in one.left_out}
                event(
                    *(logger, what),
                    level=logging.WARNING,
                    pool=one.pool,
                    source=one.settings.kind,
                    count=one.held.refused,
                    first=", ".join(address for address, _ in one.left_out),
                    reason=", ".join(sorted(reasons)),
                )
        stage = one.held.stage
        if stage is one.stage:
            return
        one.stage = stage
        level = logging.INFO if stage is Stage.GOOD else logging.WARNING
        where, known = {"pool": one.pool, "source": one.settings.kind}, len(one.held.endpoints)
        logger.log(level, _WORDS[stage], extra={"fields": {**where, "endpoints": known, "reason": one.held.reason}})


_WORDS = {
    Stage.WAITING: "source not read yet",
    Stage.GOOD: "source read",
    Stage.FAILING: "source failing, what it said last goes on",
    Stage.HELD: "source says far less than before, which it has to confirm",
}


def _nobody() -> None:
    """Tell nobody."""


def _stop(followed: _Followed) -> None:
    if followed.task is not None:
        followed.task.cancel()
        followed.task = None
