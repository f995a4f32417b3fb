"""A receiving service for tests, and who watches it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.authority import HERE
from tidegate.config_tls import Tls
from tidegate.health.agents import AgentService
from tidegate.health.registry import Registry
from tidegate.health.reported import Report
from tidegate.runtime import services


class Recorder:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.refusals: list[str] = []
        self.ended: list[str] = []
        self.refused_once = asyncio.Event()

    def reported(self, report: Report, now: float) -> None:
        assert now > 0
        self.reports.append(report)

    def refused(self, reason: str) -> None:
        self.refusals.append(reason)
        self.refused_once.set()

    def silent(self, node: str) -> None:
        self.ended.append(node)


@contextlib.asynccontextmanager
async def receiving(
    port: int, tls: Tls | None = None, max_nodes: int = 100, max_streams: int = 100
) -> AsyncIterator[tuple[Registry, Recorder]]:
    """Serve on ``port``."""
    registry, recorder = Registry(max_nodes), Recorder()
    service = AgentService(registry, recorder, authenticated=tls is not None, max_streams=max_streams)
    async with services.grpc_server(HERE, port, (service.handler(),), 0.1, tls=tls):
        yield registry, recorder
