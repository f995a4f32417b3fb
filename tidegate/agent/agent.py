"""The agent: sweeps, Xids, probes of the engine, and the reports of it all."""

import asyncio
import time
from typing import NamedTuple

from protos.gpu_health_pb2 import NodeReport
from tidegate.agent import nvml
from tidegate.agent import report as wire
from tidegate.agent.probe import Probe, probe
from tidegate.agent.reporter import Reporter, Tls
from tidegate.agent.verdict import Rules
from tidegate.agent.watch import Watch


class Settings(NamedTuple):
    """What an agent is told.

    Attributes:
        node: the name of this node, which its certificate bears.
        engines: where the engines on this node answer, as ``probe.checked`` returns it.
        interval: seconds between two sweeps, and between two reports.
        nvml_deadline: seconds that a call to NVML may take.
        probe_deadline: seconds that an engine may take.
        rules: where the lines are drawn.
    """

    node: str
    engines: tuple[str, ...] = ()
    interval: float = 2.0
    nvml_deadline: float = 2.0
    probe_deadline: float = 2.0
    rules: Rules = Rules()


class Agent:
    """Watches this host."""

    def __init__(self, settings: Settings, library: nvml.Nvml | None) -> None:
        """Watch by ``settings``, the GPUs through ``library``."""
        self._settings = settings
        # A sweep that finds a call hung takes as long as the call's deadline.
        stale = 3 * settings.interval + settings.nvml_deadline
        rules = settings.rules._replace(stale_seconds=max(settings.rules.stale_seconds, stale))
        self._watch = Watch(library, settings.nvml_deadline, rules, time.monotonic)
        self._probes: dict[str, Probe] = {}
        self._who = wire.sender(settings.node, settings.interval)

    def report(self, sequence: int = 0) -> NodeReport:
        """Return what is known now."""
        probes = self._probes.values()
        return wire.report(self._who, sequence, self._watch.driver, self._watch, probes, time.monotonic())

    async def look(self) -> NodeReport:
        """Look at everything once and return the report."""
        await asyncio.gather(self._watch.sweep(), *map(self._probe, self._settings.engines))
        await self._watch.close()
        return self.report()

    async def run(self, control: str, tls: Tls | None, stop: asyncio.Event) -> None:
        """Report to ``control`` (``host:port``) until ``stop`` is set."""
        reporter = Reporter(control, lambda sequence: self.report(sequence).SerializeToString(), tls)
        work = (
            self._sweep(reporter),
            self._watch.hear_xids(),
            *(self._probe_often(url) for url in self._settings.engines),
            reporter.run(),
        )
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(job) for job in work]
            await stop.wait()
            for task in running:
                task.cancel()
        await self._watch.close()

    async def _sweep(self, reporter: Reporter) -> None:
        due = time.monotonic()
        while True:
            await self._watch.sweep()
            reporter.changed()
            due = max(due + self._settings.interval, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    async def _probe_often(self, url: str) -> None:
        while True:
            await self._probe(url)
            await asyncio.sleep(self._settings.interval)

    async def _probe(self, url: str) -> None:
        self._probes[url] = await probe(url, self._settings.probe_deadline)
