"""Replicas that share limits through a Redis, without anything else of a control plane."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from tests.sharing.redis_server import HERE
from tidegate.scheduling.allowance import Answer, Ask
from tidegate.scheduling.budget import Cost, Limit, Unit, Window
from tidegate.sharing import names
from tidegate.sharing.allowance import SharedAllowance
from tidegate.sharing.contracts import Times
from tidegate.sharing.link import Link
from tidegate.sharing.place import Place

SCOPE = "tenant:acme"
SECONDS = 10.0

_numbers = itertools.count()


def per_minute(amount: int, burst: int | None = None, unit: Unit = Unit.REQUESTS) -> Limit:
    return Limit(unit, Window.MINUTE, amount, burst)


def per_day(amount: int, unit: Unit = Unit.REQUESTS) -> Limit:
    return Limit(unit, Window.DAY, amount)


def in_flight(amount: int, unit: Unit = Unit.REQUESTS) -> Limit:
    return Limit(unit, Window.IN_FLIGHT, amount)


class Counts:
    """An ``Observer`` that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []
        self.losses = 0
        self.alone = 0

    def called(self, outcome: str, seconds: float) -> None:
        self.calls.append((outcome, seconds))

    def forgot(self) -> None:
        self.losses += 1

    def decided_alone(self) -> None:
        self.alone += 1

    def failures(self) -> list[str]:
        return [outcome for outcome, _ in self.calls if outcome != "ok"]


class Replica:
    """One replica."""

    def __init__(
        self,
        port: int,
        limits: Mapping[str, Sequence[Limit]],
        *,
        call: float = 1.0,
        lease: float = 30.0,
        replicas: int = 1,
        wall: Callable[[], float] = time.time,
        **place: Any,
    ) -> None:
        self.counts = Counts()
        self.place, keys = Place(HERE, port, **place), names.keys("test")
        times = Times(call, 0.5, lease)
        self.allowance = SharedAllowance(
            lambda: Link(self.place, keys, 0.5), times, names.Names("salt"), self.counts, wall, replicas=replicas
        )
        self._limits = limits

    @contextlib.asynccontextmanager
    async def running(self, *, shared: bool = True) -> AsyncIterator["Replica"]:
        self.allowance.configure(self._limits)
        running = asyncio.create_task(self.allowance.run())
        try:
            if shared:
                await self.until_shared()
            yield self
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    async def until(self, holds: Callable[[], bool], seconds: float = SECONDS) -> None:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110  nobody says so
                await asyncio.sleep(0.005)

    async def until_shared(self) -> None:
        await self.until(lambda: self.allowance.state().is_shared)

    async def until_alone(self) -> None:
        await self.until(lambda: not self.allowance.state().is_shared)

    async def take(self, number: str | None = None, tokens: int = 0, scope: str = SCOPE) -> Answer:
        number = number or f"r{next(_numbers)}"
        return await self.allowance.take(Ask(number, "acme", (scope,), Cost(tokens, 0)))

    async def granted(self, tries: int) -> int:
        """Return how many of so many requests were let in."""
        return sum([(await self.take()).exceeded is None for _ in range(tries)])

    def left(self, scope: str = SCOPE) -> list[int]:
        return [one.amount for one in self.allowance.left()[scope]]


async def replicas(
    stack: contextlib.AsyncExitStack, number: int, port: int, *limits: Limit, **more: Any
) -> list[Replica]:
    """Run so many replicas until ``stack`` ends, once each knows of all the others."""
    made = [Replica(port, {SCOPE: limits}, **more) for _ in range(number)]
    for one in made:
        await stack.enter_async_context(one.running())
    for one in made:
        await one.until(lambda one=one: one.allowance.state().replicas == number)  # type: ignore[misc]
    return made
