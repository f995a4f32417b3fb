"""The model of an engine in real time: sleeps until a step is over, then hands out its tokens."""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidegate.simulator.batching import BatchingEngine
from tidegate.simulator.faults import SOUND, Faults
from tidegate.simulator.sequence import EngineRequest, StepOutcome
from tidegate.simulator.stats import FinishReason, Gauges

_BURST_SECONDS = 0.002
"""How long steps that are due already may keep the event loop before others get their turn."""
_MAX_LAG_SECONDS = 0.1
"""How far the engine may fall behind the clock before it gives up catching up: a process that lacks CPU, or a machine
that slept."""


def nobody() -> None:
    """Tell nobody."""


class Update(NamedTuple):
    """News of one sequence: one more token; with a ``reason``, the last one, or the end of a prefill without any."""

    sequence: int
    reason: FinishReason | None = None
    cached_tokens: int = 0


class Inbox:
    """Where one HTTP request gets the tokens of its sequences; they are bounded by what it asked for."""

    def __init__(self) -> None:
        self._updates: list[Update] = []
        self._news = asyncio.Event()

    def put(self, update: Update) -> None:
        """Leave ``update`` there."""
        self._updates.append(update)
        self._news.set()

    async def take(self) -> list[Update]:
        """Wait for news, and return all there is. The caller bounds the wait: its client's patience."""
        await self._news.wait()
        self._news.clear()
        updates, self._updates = self._updates, []
        return updates


class LiveEngine:
    """One engine on the event loop's clock."""

    def __init__(self, model: BatchingEngine, speed: float, told: Callable[[], object] = nobody) -> None:
        """Prepare to run ``model``, ``speed`` times as fast as its profile says, on the event loop that runs now.

        ``told`` is called when a step has begun, and may have changed the KV cache.
        """
        self.model = model
        self._told = told
        self.gauges = Gauges()
        """As of the last step: a frozen engine shows old ones, as vLLM does."""
        self._speed = speed
        self._faults = SOUND
        self._inboxes: dict[str, tuple[Inbox, int]] = {}
        self._wake = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self._time = self._clock()
        self._turn_ends = 0.0

    @property
    def faults(self) -> Faults:
        """What is wrong with it."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._faults = faults
        self._wake.set()

    def submit(self, requests: Sequence[EngineRequest]) -> Inbox:
        """Start ``requests``, the sequences of one HTTP request.

        Raises:
            QueueFullError: see ``BatchingEngine.submit``.
        """
        # Where the engine lags behind the clock, the request came at the engine's time: nobody waits less than nothing.
        self.model.submit(requests, min(self._clock(), self._time))
        inbox = Inbox()
        self._inboxes |= {request.id: (inbox, at) for at, request in enumerate(requests)}
        self._wake.set()
        return inbox

    def abort(self, requests: Sequence[EngineRequest]) -> None:
        """Forget those of ``requests`` that still run."""
        for request in requests:
            if self._inboxes.pop(request.id, None):
                self.model.abort(request.id)
                self._wake.set()

    async def run(self) -> None:
        """Do the engine's steps, for ever.

        The engine keeps a time of its own, which moves by the durations of its steps. A timer that fires late thus
        makes a token late and not the engine slow; steps that have become due meanwhile are done together.
        """
        while True:
            await self._thawed()
            duration = self.model.begin(self._time)
            self._told()
            self.gauges = self.model.gauges
            if duration is None:
                await self._work()
                continue
            ends = self._time + duration * self._faults.slow / self._speed
            self._time = max(ends, self._clock() - _MAX_LAG_SECONDS)
            await self._sleep_until(self._time)
            await self._thawed()
            self._hand_out(self.model.complete(self._time))

    async def _work(self) -> None:
        """Wait for something to do."""
        self._time = math.inf
        self._wake.clear()
        await self._wake.wait()
        self._time = self._clock()

    async def _thawed(self) -> None:
        """Wait while the engine is frozen."""
        while self._faults.freeze:
            self._wake.clear()
            await self._wake.wait()
            self._time = max(self._time, self._clock())

    async def _sleep_until(self, ends: float) -> None:
        now = self._clock()
        if ends > now:
            await asyncio.sleep(ends - now)
        elif now > self._turn_ends:
            await asyncio.sleep(0)
        else:
            return
        self._turn_ends = self._clock() + _BURST_SECONDS

    def _hand_out(self, outcome: StepOutcome) -> None:
        for request_id, reason, cached_tokens in outcome.finished:
            inbox, at = self._inboxes.pop(request_id)
            inbox.put(Update(at, reason, cached_tokens))
        for request_id in outcome.tokens:
            if request_id in self._inboxes:
                inbox, at = self._inboxes[request_id]
                inbox.put(Update(at))
