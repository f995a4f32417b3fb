"""Asks every endpoint how it is, by the checks of its pool, again and again.

Each check of each endpoint that asks it something has a task of its own and a schedule that is jittered, so that one
which hangs delays no other; how many are under way at once is bounded, and each has a deadline. Those that ask nothing
are gone through one after the other, at a fraction of the cost; an engine of which nothing is heard is then asked
(``inquiry``). What all come to goes out as evidence.
"""

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import aiohttp

from tidegate.config_checks import Check
from tidegate.engines import checks, fetch, inquiry
from tidegate.engines.api import api
from tidegate.engines.check import PASSED, Ask, Finding, Found, Standing, Subject, came_to_nothing
from tidegate.engines.model_list import MAX_BYTES
from tidegate.engines.outcome import ScrapeError
from tidegate.engines.scraper import pause
from tidegate.engines.tally import Tally, seen_whole
from tidegate.fleet.events import EvidenceReported, FleetEvent
from tidegate.fleet.evidence import Verdict

MOST_AT_ONCE: Final = 64
"""Questions under way at once, over all endpoints."""

ONE_OF_A_POOL: Final = "inference"
"""The check that takes an engine's time: one endpoint of a pool at a time is asked."""

ASKS_NOTHING: Final = "progress"
"""The check that only looks at what is known."""

SWEEP_SECONDS: Final = 0.1
"""Pause between two looks for which of those are due."""

_LOG = logging.getLogger("tidegate.engines")

Key = tuple[str, str]
"""An endpoint's address, and a check's name."""


class CheckState(NamedTuple):
    """How one check of one endpoint stands."""

    pool: str
    address: str
    check: str
    verdict: Verdict
    last: Found | None


@dataclass(slots=True)
class _Watched:
    subject: Subject
    tally: Tally = field(default_factory=Tally)
    task: asyncio.Task[None] | None = None
    due: float = 0.0
    inquired_at: float = -math.inf


@dataclass(frozen=True, slots=True)
class _Running:
    tasks: asyncio.TaskGroup
    session: aiohttp.ClientSession


class Checker:
    """Checks a set of endpoints, and says what that comes to."""

    def __init__(
        self,
        standing: Callable[[str], Standing],
        emit: Callable[[FleetEvent], None],
        rng: random.Random,
        observe: Callable[[str, str, float], None],
    ) -> None:
        """Nothing happens until ``run``.

        Args:
            standing: says what is known of the endpoint at an address.
            emit: takes the evidence.
            rng: spreads the checks over time.
            observe: takes note of a check's name, of what it found and of how many seconds it took.
        """
        self._standing = standing
        self._emit = emit
        self._rng = rng
        self._observe = observe
        self._watched: dict[Key, _Watched] = {}
        self._running: _Running | None = None
        self._at_once = asyncio.Semaphore(MOST_AT_ONCE)
        self._turns: dict[str, asyncio.Lock] = {}

    def watch(self, subjects: Mapping[Key, Subject]) -> None:
        """Check exactly ``subjects``. One that stays as it is is not disturbed."""
        for key in [*self._watched]:
            if key not in subjects or subjects[key] != self._watched[key].subject:
                task = self._watched.pop(key).task
                if task is not None:
                    task.cancel()
        for key, subject in subjects.items():
            if key not in self._watched:
                self._watched[key] = watched = _Watched(subject)
                self._start(watched)
        pools = {subject.pool for subject in subjects.values()}
        self._turns = {pool: self._turns.get(pool) or asyncio.Lock() for pool in pools}

    async def run(self) -> None:
        """Check until cancelled."""
        async with fetch.open_session(per_host=0) as session, asyncio.TaskGroup() as tasks:
            self._running = _Running(tasks, session)
            tasks.create_task(self._sweep(session))
            try:
                for watched in self._watched.values():
                    self._start(watched)
                await asyncio.get_running_loop().create_future()
            finally:
                self._running = None

    def states(self) -> Iterator[CheckState]:
        """Yield how each check stands."""
        for (address, name), watched in self._watched.items():
            yield CheckState(watched.subject.pool, address, name, watched.tally.verdict, watched.tally.last)

    def _start(self, watched: _Watched) -> None:
        if self._running is not None and watched.subject.check.name != ASKS_NOTHING:
            watched.task = self._running.tasks.create_task(self._follow(watched, self._running.session))

    async def _sweep(self, session: aiohttp.ClientSession) -> None:
        """Go through the checks that ask nothing, for ever."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = clock()
            for watched in [*self._watched.values()]:
                check = watched.subject.check
                if check.name == ASKS_NOTHING and now >= watched.due:
                    watched.due = now + pause(check.interval, self._rng)
                    await self._try(watched, session)
                    await asyncio.sleep(0)  # requests are decided between two

    async def _follow(self, watched: _Watched, session: aiohttp.ClientSession) -> None:
        interval = watched.subject.check.interval
        await asyncio.sleep(interval * self._rng.random())
        while True:
            await self._try(watched, session)
            await asyncio.sleep(pause(interval, self._rng))

    async def _try(self, watched: _Watched, session: aiohttp.ClientSession) -> None:
        try:
            await self._check(watched, session)
        except Exception:  # noqa: BLE001  not even whoever takes the evidence may end the checks
            _LOG.exception("a check went wrong")

    async def _check(self, watched: _Watched, session: aiohttp.ClientSession) -> None:
        subject, clock = watched.subject, asyncio.get_running_loop().time
        check = subject.check
        if check.name == ASKS_NOTHING:
            standing = self._standing(subject.address)
            found, seconds = await checks.find(check.name)(replace(subject, standing=standing), session), 0.0
        elif check.name == ONE_OF_A_POOL:
            async with self._turns[subject.pool], self._at_once:
                found, seconds = await self._ask(subject, session)
        else:
            async with self._at_once:
                found, seconds = await self._ask(subject, session)
        found = seen_whole(found, self._standing(subject.address), check)
        self._observe(check.name, found.finding.value, seconds)
        self._take(watched, found, check, clock())
        if found is inquiry.NOTHING_HEARD:
            self._inquire(watched, session, clock())

    def _take(self, watched: _Watched, found: Found, check: Check, now: float) -> None:
        address, before = watched.subject.address, watched.tally.verdict
        evidence = watched.tally.take(found, check, now)
        if evidence is not None:
            self._emit(EvidenceReported(address, evidence))
        after = watched.tally.verdict
        if after is not before and Verdict.FAILED in {before, after}:
            level = logging.WARNING if after is Verdict.FAILED else logging.INFO
            said = {"address": address, "check": check.name, "verdict": after.value}
            _LOG.log(level, "check", extra={"fields": {**said, "reason": found.reason, "detail": found.detail}})

    def _inquire(self, watched: _Watched, session: aiohttp.ClientSession, now: float) -> None:
        """Have it be asked whether anybody is there, unless that is under way or was found out just now."""
        busy = watched.task is not None and not watched.task.done()
        if self._running is not None and not busy and now - watched.inquired_at >= inquiry.AGAIN_SECONDS:
            watched.task = self._running.tasks.create_task(self._inquiry(watched, session))

    async def _inquiry(self, watched: _Watched, session: aiohttp.ClientSession) -> None:
        subject, clock = replace(watched.subject, check=inquiry.PROBE), asyncio.get_running_loop().time

        async def ask() -> Found:
            async with self._at_once:
                found, seconds = await self._ask(subject, session, _anything)
            self._observe(subject.check.name, found.finding.value, seconds)
            return found

        def say(found: Found) -> None:
            self._take(watched, found, subject.check, clock())

        try:
            await inquiry.inquire(ask, lambda: self._standing(subject.address), say, clock)
        except Exception:  # noqa: BLE001  likewise
            _LOG.exception("an inquiry went wrong")
        watched.inquired_at = clock()

    async def _ask(
        self, subject: Subject, session: aiohttp.ClientSession, how: Ask | None = None
    ) -> tuple[Found, float]:
        """Return what was found, by its check or as ``how`` asks, and how many seconds that took."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(subject.seconds):
                subject = replace(subject, standing=self._standing(subject.address))
                found = await (how or checks.find(subject.check.name))(subject, session)
        except TimeoutError:
            found = Found(Finding.TIMED_OUT, "timeout", f"no answer within {subject.seconds:g} s")
        except ScrapeError as error:
            found = came_to_nothing(error)
        except Exception as error:  # noqa: BLE001  whatever an engine sends
            _LOG.debug("a check went wrong", exc_info=error)
            found = Found(Finding.FAULT, "fault", f"unexpected {type(error).__name__}")
        return found, clock() - began


async def _anything(subject: Subject, session: aiohttp.ClientSession) -> Found:
    """Ask for the list of models, which no engine computes anything for; whatever it answers, it is there."""
    url = subject.url(api(subject.engine).models)
    await fetch.exchange(session, url, timeout_seconds=subject.seconds, max_bytes=MAX_BYTES, tls=subject.tls)
    return PASSED
