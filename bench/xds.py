"""What telling Envoys costs: CPU, bytes and the time until all have acknowledged, by endpoints and by clients.

The discovery service, the fleet and what turns the one into the other run as in the control plane, in a process of
their own; the clients are not Envoys, but subscribe and acknowledge as those do, all from one other process. Endpoints
are spread over pools of a hundred. Three things are measured: all clients connect at once and have nothing
(``connect``), the weight of one endpoint changes (``weight``, the median of ``CHANGES``), and every endpoint moves to
another port (``all``). ``delta`` is what our Envoys speak, ``sotw`` the same by whole states.

Run it from the repository's root: ``python -m bench.xds``.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple

import psutil

from bench.processes import free_ports
from tidegate.config import Config
from tidegate.discovery.static import declared
from tidegate.fleet.events import EvidenceReported, FleetEvent
from tidegate.fleet.evidence import Evidence, Verdict
from tidegate.fleet.state import Fleet
from tidegate.runtime import services
from tidegate.runtime.publisher import Publisher
from xds.events import Acked, DiscoveryEvent, StreamOpened
from xds.server import DiscoveryServer

PER_POOL = 100
SIZES = ((100, 1), (1_000, 1), (5_000, 1), (100, 200), (1_000, 200), (5_000, 200))
"""Endpoints and clients."""

VARIANTS = ("delta", "sotw")
CHANGES = 7
PATIENCE = 120.0
"""Seconds that a step may take."""


class Cost(NamedTuple):
    """What one step cost.

    Attributes:
        cpu: seconds of CPU in the process that serves.
        bytes: of the responses to all clients.
        seconds: until the last acknowledgement.
    """

    cpu: float
    bytes: int
    seconds: float


def configured(endpoints: int, port: int) -> Config:
    """Return the configuration of a fleet of so many ``endpoints``, each on ``port`` of a host of its own."""
    return Config.model_validate(
        {
            "health": {"warm_up_seconds": 0},
            "pools": tuple(
                {
                    "name": f"pool-{first // PER_POOL}",
                    "engine": "none",
                    "models": (f"model-{first // PER_POOL}",),
                    "endpoints": tuple(
                        {"address": f"10.{at >> 16}.{at >> 8 & 255}.{at & 255}:{port}"}
                        for at in range(first, min(first + PER_POOL, endpoints))
                    ),
                }
                for first in range(0, endpoints, PER_POOL)
            ),
        }
    )


class Served:
    """A fleet that is served to clients."""

    def __init__(self, endpoints: int, clients: int, variant: str) -> None:
        """Serve nobody yet."""
        self._endpoints, self._clients, self._variant = endpoints, clients, variant
        self.config = configured(endpoints, 8000)
        self.fleet = Fleet(lease_seconds=45.0, stale_after=30.0)
        self.fleet.apply(declared(self.config), time.monotonic())
        self._acknowledged = asyncio.Event()
        self.discovery = DiscoveryServer(self._observe)
        self._publisher = Publisher(self.discovery, lambda: self.fleet.views(time.monotonic()), time.monotonic)
        self._first: float | None = None
        self._last = 0.0

    def _observe(self, event: DiscoveryEvent) -> None:
        if isinstance(event, StreamOpened) and self._first is None:
            self._first = time.monotonic()
        if isinstance(event, Acked):
            self._last = time.monotonic()
            self._acknowledged.set()

    async def told(self, events: Sequence[FleetEvent]) -> tuple[float, float]:
        """Apply ``events``, publish, and wait until every client has it; return seconds of CPU, and of time."""
        cpu, began = time.process_time(), time.monotonic()
        for event in events:
            self.fleet.apply(event, began)
        self._publisher.publish(self.config)
        await self._settled()
        return time.process_time() - cpu, self._last - began

    async def connected(self) -> tuple[float, float]:
        """Wait until every client has come, and has all; return seconds of CPU, and from the first that came on."""
        cpu = time.process_time()
        await self._settled()
        return time.process_time() - cpu, self._last - (self._first or self._last)

    async def _settled(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while not (self.discovery.streams == self._clients and self._complete()):
                self._acknowledged.clear()
                await self._acknowledged.wait()
                # Looking costs too, so one looks when it may be over, not at each acknowledgement.
                await asyncio.sleep(0.02)

    def _complete(self) -> bool:
        return self.discovery.up_to_date and all(len(one.types) == 4 for one in self.discovery.standings())

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """Serve, and have the clients come; yield their process."""
        self._publisher.publish(self.config)
        (port,) = free_ports(1)
        command = [sys.executable, "-m", "bench.xds_clients", str(port), str(self._clients), self._variant]
        async with services.grpc_server("127.0.0.1", port, self.discovery.handlers(), 0.0):
            pipe = subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
            try:
                yield process
            finally:
                process.kill()
                await process.wait()


async def received(process: asyncio.subprocess.Process) -> int:
    """Return how many bytes the clients have been sent."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    return int(await process.stdout.readline())


def impaired(number: int) -> list[FleetEvent]:
    """Return what halves the weight of one endpoint, another one for each ``number``."""
    return [EvidenceReported(f"10.0.0.{number}:8000", Evidence("agent", Verdict.IMPAIRED, ("hot",)))]


async def measure(endpoints: int, clients: int, variant: str) -> dict[str, object]:
    """Return what the steps cost, and the memory of the process that serves."""
    served = Served(endpoints, clients, variant)
    steps: dict[str, Cost] = {}
    async with served.listening() as process:
        cpu, seconds = await served.connected()
        so_far = await received(process)
        steps["connect"] = Cost(cpu, so_far, seconds)
        changes = []
        for number in range(CHANGES):
            cpu, seconds = await served.told(impaired(number))
            total = await received(process)
            changes.append(Cost(cpu, total - so_far, seconds))
            so_far = total
        steps["weight"] = Cost(*(statistics.median(figure) for figure in zip(*changes, strict=True)))
        served.config = configured(endpoints, 8001)
        cpu, seconds = await served.told([declared(served.config)])
        steps["all"] = Cost(cpu, await received(process) - so_far, seconds)
    memory = psutil.Process().memory_info().rss
    return {"steps": {name: step._asdict() for name, step in steps.items()}, "memory": memory}


def rows(endpoints: int, clients: int, variant: str) -> Iterator[str]:
    """Measure in a process of its own; yield the lines of the table."""
    case = [str(endpoints), str(clients), variant]
    command = [sys.executable, "-m", "bench.xds", "--case", *case]
    told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    for name, step in told["steps"].items():
        cost = Cost(**step)
        yield (
            f"{endpoints:>9} {clients:>7} {variant:<7} {name:<8}"
            f" {cost.cpu * 1e3:>8.0f} {cost.cpu / clients * 1e6:>9.0f} {cost.bytes / clients / 1e3:>10.1f}"
            f" {cost.seconds:>8.2f} {told['memory'] / 2**20:>7.0f}"
        )


def main() -> None:
    """Print the table, or one case as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs=3, metavar=("ENDPOINTS", "CLIENTS", "VARIANT"), help="this one, as JSON")
    given = parser.parse_args()
    if given.case:
        endpoints, clients, variant = given.case
        print(json.dumps(asyncio.run(measure(int(endpoints), int(clients), variant))))
        return
    print("endpoints clients variant step       CPU ms  µs/client  kB/client  seconds     MiB")
    for variant in VARIANTS:
        for endpoints, clients in SIZES:
            for row in rows(endpoints, clients, variant):
                print(row, flush=True)


if __name__ == "__main__":
    main()
