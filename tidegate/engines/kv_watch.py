"""Listens to all engines that publish KV events, each in a task of its own."""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.engines.kv_source import KvOutcome, KvSource, KvStanding
from tidegate.fleet.events import FleetEvent

if TYPE_CHECKING:
    import zmq.asyncio

    from tidegate.engines.kv_subscriber import Subscription

MAX_SOCKETS = 65_535
"""ZMQ's own bound is 1,023, and an endpoint takes two or three."""


@dataclass(frozen=True, slots=True)
class _Running:
    """What exists while ``run`` does."""

    tasks: asyncio.TaskGroup


class KvWatch:
    """Listens to a set of engines. As long as that is empty, ZMQ is not even loaded."""

    def __init__(self, emit: Callable[[FleetEvent], None], observe: Callable[[str], None], rng: random.Random) -> None:
        """Nothing happens until ``run``.

        Args:
            emit: takes the events in their order; called in the loop that ``run`` runs in.
            observe: takes note of what happens, a value of ``KvOutcome``.
            rng: spreads attempts to connect over time.
        """
        self._emit = emit
        self._observe = observe
        self._rng = rng
        self._sources: dict[str, KvSource] = {}
        self._listening: dict[str, tuple[Subscription, asyncio.Task[None]]] = {}
        self._context: zmq.asyncio.Context | None = None
        self._running: _Running | None = None

    def watch(self, sources: Iterable[KvSource]) -> None:
        """Listen to exactly ``sources``; one that stays is not disturbed. Call it before ``run``, or in its loop."""
        wanted = {source.address: source for source in sources}
        for address, source in self._sources.items():
            if wanted.get(address) != source and address in self._listening:
                self._listening.pop(address)[1].cancel()
        self._sources = wanted
        self._start()

    async def run(self) -> None:
        """Listen until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._running = _Running(tasks)
            try:
                self._start()
                await asyncio.get_running_loop().create_future()
            finally:
                self._running = None
                listening, self._listening = self._listening, {}
                for _, task in listening.values():
                    task.cancel()
                await asyncio.gather(*(task for _, task in listening.values()), return_exceptions=True)
                if self._context is not None:
                    self._context.destroy(linger=0)
                    self._context = None

    def standings(self) -> Mapping[str, KvStanding]:
        """Return how it stands with each engine, by its endpoint's address."""
        return {address: subscription.standing for address, (subscription, _) in self._listening.items()}

    def _start(self) -> None:
        missing = [source for address, source in self._sources.items() if address not in self._listening]
        if self._running is None or not missing:
            return
        # Here because the package is optional, and takes 10 MB.
        import zmq.asyncio  # noqa: PLC0415

        from tidegate.engines.kv_subscriber import Subscription  # noqa: PLC0415

        if self._context is None:
            self._context = zmq.asyncio.Context()
            self._context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        for source in missing:
            subscription = Subscription(source, self._context, self._emit, self._note, self._rng)
            self._listening[source.address] = (subscription, self._running.tasks.create_task(subscription.run()))

    def _note(self, outcome: KvOutcome) -> None:
        self._observe(outcome.value)
