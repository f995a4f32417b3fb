"""All that a process needs to decide: its counter, its dispatcher, and the desk at which ext_proc asks."""

import asyncio
import gc
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from extproc.intake import Intake
from extproc.sessions import HEADER, SessionKeys
from tidegate.config import Config
from tidegate.config_placement import Session
from tidegate.config_routes import traffic
from tidegate.discovery import static
from tidegate.fleet.state import Fleet
from tidegate.runtime.desk import Desk, Journal
from tidegate.runtime.figures import Figures
from tidegate.runtime.gatekeeper import Gatekeeper, Till
from tidegate.runtime.prompts import PromptCounter
from tidegate.runtime.token_prefixes import TokenPrefixes
from tidegate.runtime.waiting_room import WaitingRoom
from tidegate.scheduling.admission import Admission
from tidegate.scheduling.dispatch import Dispatcher
from tidegate.scheduling.line import QueueSettings
from tidegate.telemetry.decision_log import DecisionLog
from tidegate.tokens.correction import Corrections
from tidegate.tokens.counter import TokenCounter

HANDOVER_SECONDS: Final = 0.0005
"""How long a thread that reads a large body or counts its tokens may keep the event loop waiting for the interpreter.
With Python's own 5 ms, prompts of 1 MB made the p99 of small requests 1.58 times what it was; so, 1.38 times."""


class Decider:
    """Decides on requests over one fleet, for as long as it is not closed.

    Attributes:
        waiting_room: where requests wait for room.
    """

    def __init__(
        self,
        fleet: Fleet,
        corrections: Corrections,
        figures: Figures,
        new_id: Callable[[str], str],
        journal: Journal,
        *,
        started_at: int,
        till: Till | None = None,
        queueing: bool = True,
    ) -> None:
        """Decide over ``fleet``, correct token counts by ``corrections``; the rest is for the ``Desk``.

        ``till`` is where it is counted what tenants use; without it nobody is asked who they are. Without ``queueing``,
        what finds no room does not wait here, whatever the configuration says.
        """
        self.counter = TokenCounter()
        self.intake = Intake()
        # Nothing secret hangs on it, and the system's own asks the kernel for every number.
        self.dispatcher = Dispatcher(fleet, random.Random())  # noqa: S311
        self.prompts = PromptCounter(self.counter, corrections, figures, self.dispatcher.pool_of)
        self.told_prefixes = TokenPrefixes(self.dispatcher.route_of, self.counter, self.prompts.tokenizer)
        self.desk = Desk(
            *(self.dispatcher, self.prompts, figures, new_id, journal, time.monotonic, self.intake, self.told_prefixes),
            started_at=started_at,
        )
        self._gatekeeper = None if till is None else Gatekeeper(till, self.dispatcher.longest_output)
        self._queueing = queueing
        self.waiting_room = WaitingRoom(
            Admission(fleet, self.dispatcher), self.desk.decided, self.desk.abandon, figures, time.monotonic
        )

    async def warm(self, config: Config) -> None:
        """Load what counts tokens: about a second. Until then, counts are estimates.

        Raises:
            VocabularyError: a vocabulary is missing.
        """
        await asyncio.to_thread(self.counter.warm)
        await self.prompts.load(config)
        sys.setswitchinterval(HANDOVER_SECONDS)
        _spare_the_collector()

    def configure(self, config: Config) -> None:
        """Decide by ``config`` from now on, with the tokenizers that ``prompts.load`` has read."""
        self.intake.configure(config.limits.max_body_bytes, decode=config.limits.compressed_bodies == "decode")
        queues = _queues(config) if self._queueing else {}
        rooms = self.waiting_room.configure(queues)
        self.dispatcher.configure(static.declared(config), static.policies(config), rooms)
        self.desk.waiting_room = self.waiting_room if queues else None
        self.prompts.configure(config)
        self.desk.serve(
            config.pools,
            config.unknown_paths.pool or "",
            _sessions(config.session),
            routes=traffic(config.routes),
            fingerprints=config.limits.quarantine_seconds > 0,
            objectives={objective.name: objective.priority for objective in config.objectives},
        )
        if self._gatekeeper is not None:
            self._gatekeeper.configure(config)
            self.desk.gate = self._gatekeeper if config.tenants else None
        self.told_prefixes.configure(config)

    def recording(self, config: Config, suffix: str = "") -> DecisionLog | None:
        """Have decisions recorded where ``config`` says so; return what is to be run to write them.

        ``suffix`` is added to the file's name: each process has a file of its own.
        """
        settings = config.decision_log
        if settings.file is None or not settings.sample:
            return None
        log = DecisionLog(Path(f"{settings.file}{suffix}"), settings.max_bytes)
        self.dispatcher.sample(settings.sample, log.record)
        return log

    def close(self) -> None:
        """End the threads, once no stream is open any more."""
        self.intake.close()
        self.counter.close()


def _queues(config: Config) -> dict[str, QueueSettings]:
    """Return the queues of the pools that have one; where several processes decide, each has its part of them."""
    tiers = {tier.name: tier.weight for tier in config.tiers}
    weights = {tenant.name: tiers.get(tenant.tier or "", 1.0) for tenant in config.tenants}
    workers = config.control.workers
    return {
        pool.name: replace(pool.queue.settings(weights, workers), ttft_seconds=pool.objective.ttft_seconds)
        for pool in config.pools
        if pool.queue.enabled
    }


def _sessions(said: Session) -> SessionKeys:
    """Return by what sessions are known; where nothing is ``said``, by the usual header."""
    if said.cookie is None and said.body_field is None:
        return SessionKeys(said.header or HEADER)
    return SessionKeys(said.header or "", said.cookie or "", said.body_field or "")


def _spare_the_collector() -> None:
    """Keep what lives for ever, the vocabularies' 300,000 entries above all, out of every future garbage collection.

    Looking through it again and again took a tenth of the process's time under load (measured).
    """
    gc.collect()
    gc.freeze()
