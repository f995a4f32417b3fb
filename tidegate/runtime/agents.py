"""GPU agents: listens for them, and tells the fleet what they say of the endpoints on their nodes."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from prometheus_client import Counter

from tidegate import addresses
from tidegate.config import Config
from tidegate.config_agents import Agents as Settings
from tidegate.fleet.events import (
    EvidenceReported,
    FleetChange,
    GpuMemoryReported,
    MembershipChanged,
    PoolsDeclared,
    ReachabilityChanged,
)
from tidegate.fleet.health import Reachability
from tidegate.health import figures
from tidegate.health.agents import MAX_REPORT_BYTES, AgentService
from tidegate.health.judge import evidence, judged, memory
from tidegate.health.places import Believed, Places, nobody
from tidegate.health.registry import FORGET_SECONDS, Heard, Registry, patience
from tidegate.health.reported import EngineAnswer, Report
from tidegate.runtime import services
from tidegate.runtime.part import Part, Surroundings
from tidegate.telemetry.admin import Page
from tidegate.telemetry.gpus import GpuCollector, GpuFigures, NodeFigures
from tidegate.telemetry.log import event

logger = logging.getLogger("tidegate.agents")

LOOK_SECONDS: Final = 1.0
"""Pause between two looks for agents that fell silent."""

STREAMS_PER_NODE: Final = 2
"""An agent that comes back may do so before its old stream is noticed to be dead."""

MAX_SAID: Final = 10_000
"""Nodes of which it was said in the log that no endpoint runs there."""


class _Claim(NamedTuple):
    """For whom ``node`` speaks, and until when nobody else does (seconds)."""

    node: str
    until: float


class Agents(Part):
    """The part that hears GPU agents."""

    def __init__(
        self, surroundings: Surroundings, settings: Settings, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Listen as ``settings`` say; ``now`` is the time in seconds, monotonic."""
        self._apply = surroundings.apply
        self._settings = settings
        self._now = now
        self._registry = Registry(settings.max_nodes)
        self._places = Places()
        self._claims: dict[str, _Claim] = {}
        self._unreachable: set[str] = set()
        self._silent: set[str] = set()
        self._homeless: dict[str, None] = {}
        registry = surroundings.metrics.registry
        self._reports = Counter(
            "tidegate_agent_reports_total",
            "Reports of GPU agents, by what became of them.",
            ["outcome"],
            registry=registry,
        )
        self._dropped = Counter(
            "tidegate_agent_dropped_fields_total",
            "Fields of reports that cannot be true, and were left out.",
            ["field"],
            registry=registry,
        )
        registry.register(GpuCollector(lambda: tuple(self._nodes())))

    # -- as a part

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Hear agents."""
        settings = self._settings
        service = AgentService(
            self._registry,
            self,
            authenticated=settings.tls is not None,
            max_streams=STREAMS_PER_NODE * settings.max_nodes,
            now=self._now,
        )
        serving = services.grpc_server(
            *(settings.address, settings.port, (service.handler(),), services.FAREWELL_SECONDS),
            tls=settings.tls,
            max_bytes=MAX_REPORT_BYTES,
        )
        async with serving:
            yield

    def follow(self, config: Config, declared: PoolsDeclared) -> None:  # noqa: ARG002
        """Learn where the endpoints are."""
        endpoints = [endpoint for pool in declared.pools for endpoint in pool.endpoints]
        self._places = Places(endpoints, self._believed())
        present = {endpoint.address for endpoint in endpoints}
        self._claims = {address: claim for address, claim in self._claims.items() if address in present}
        self._unreachable &= present

    def _believed(self) -> Believed:
        if self._settings.tls is not None:
            return nobody
        if addresses.is_loopback(self._settings.address):
            return lambda _: True
        return lambda host: not addresses.is_loopback(host)

    async def run(self) -> None:
        """Say in the log who falls silent, for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Say in the log who fell silent since the last time."""
        now = self._now()
        for heard in self._registry:
            node = heard.report.node
            if heard.silent(now) and node not in self._silent:
                self._silent.add(node)
                event(logger, "GPU agent silent", level=logging.WARNING, node=node, seconds=round(heard.age(now), 1))
        self._silent &= {heard.report.node for heard in self._registry}

    def changed(self, change: FleetChange) -> None:
        """Take note of who can be reached."""
        match change:
            case ReachabilityChanged(address, Reachability.UNREACHABLE):
                self._unreachable.add(address)
            case ReachabilityChanged(address):
                self._unreachable.discard(address)
            case MembershipChanged(_, removed):
                self._unreachable.difference_update(removed)

    def pages(self) -> Mapping[str, Page]:
        """Return the page of the nodes."""
        return {"/agents": Page("what GPU agents say of their nodes", lambda _: {"nodes": [*self._described()]})}

    # -- as the service's observer

    def reported(self, report: Report, now: float) -> None:
        """Tell the fleet what a report says of the endpoints on its node."""
        self._reports.labels("taken").inc()
        for field in report.dropped:
            self._dropped.labels(field).inc()
        if report.node in self._silent:
            self._silent.discard(report.node)
            event(logger, "GPU agent heard again", node=report.node)
        places = self._places.on(report)
        if not places:
            self._say_homeless(report.node)
        for place in places:
            if not self._speaks_for(report, place.address, now):
                continue
            found = evidence(report, place, unreachable=place.address in self._unreachable)
            self._apply(EvidenceReported(place.address, found))
            vram = memory(report, place)
            if vram is not None:
                self._apply(GpuMemoryReported(place.address, vram))

    def refused(self, reason: str) -> None:
        """Count a report that changed nothing."""
        self._reports.labels(reason).inc()

    def silent(self, node: str) -> None:
        """Do nothing: what a node said counts until it is too old."""

    def _speaks_for(self, report: Report, address: str, now: float) -> bool:
        """Return whether the node may speak for ``address``: the first that does so is the only one while it speaks."""
        claim = self._claims.get(address)
        if claim is not None and claim.node != report.node and now < claim.until:
            self._reports.labels("claimed").inc()
            return False
        self._claims[address] = _Claim(report.node, now + patience(report))
        return True

    def _say_homeless(self, node: str) -> None:
        if node not in self._homeless and len(self._homeless) < MAX_SAID:
            self._homeless[node] = None
            event(logger, "a GPU agent reports, and no endpoint is known to be on its node", node=node)

    # -- what is shown

    def _nodes(self) -> Iterator[NodeFigures]:
        """Yield what is exported of each node; one that has been silent for long is only if somebody names it."""
        now, named = self._now(), set(self._places.named)
        for heard in self._registry:
            report = heard.report
            if heard.age(now) > FORGET_SECONDS and report.node not in named:
                continue
            named.discard(report.node)
            yield _figures(heard, now)
        for node in sorted(named):
            yield NodeFigures(node, heard=False, age=None)

    def _described(self) -> Iterator[dict[str, Any]]:
        now = self._now()
        for heard in self._registry:
            report = heard.report
            yield {
                "node": report.node,
                "age_seconds": round(heard.age(now), 3),
                "silent": heard.silent(now),
                "driver": {"state": report.driver.value, "version": report.driver_version},
                "agent_version": report.agent_version,
                "endpoints": [place.address for place in self._places.on(report)],
                "gpus": [
                    {
                        "index": gpu.ordinal,
                        "uuid": gpu.uuid,
                        "name": gpu.name,
                        "state": gpu.condition.value,
                        "reasons": [
                            {"code": reason.code, "detail": reason.detail, "since_seconds": reason.since_seconds}
                            for reason in gpu.reasons
                        ],
                        **figures.values(gpu),
                    }
                    for gpu in report.gpus
                ],
                "engines": [
                    {"url": engine.url, "answer": engine.answer.value, "http_status": engine.http_status}
                    for engine in report.engines
                ],
                "dropped_fields": list(report.dropped),
            }


def _figures(heard: Heard, now: float) -> NodeFigures:
    report, silent = heard.report, heard.silent(now)
    if silent:
        return NodeFigures(report.node, heard=False, age=heard.age(now))
    gpus = tuple(
        GpuFigures(
            gpu.ordinal,
            gpu.uuid,
            gpu.name,
            gpu.condition.value,
            judged(gpu).reasons,
            figures.values(gpu),
        )
        for gpu in report.gpus
    )
    answering = sum(engine.answer is EngineAnswer.ANSWERS for engine in report.engines)
    return NodeFigures(report.node, True, heard.age(now), gpus, (answering, len(report.engines) - answering))
