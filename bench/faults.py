"""What faults cost a fleet of eight engines under steady load: with Tidegate, and with an Envoy that guards itself.

Each fault strikes one engine of eight, the one that was asked most (or the agents beside them), while streams of chat
completions go on at a steady rate. Told are the requests that were lost, how long the sick engine still got requests,
and how many of the others were taken for sick. The engines are simulated, the GPU agents real on a stand-in for the
driver, Envoy is real.
"""

import argparse
import asyncio
import contextlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from bench.fault_fleet import MODEL, VRAM_BYTES, Host, Node, Way, envoy_alone, nodes, tidegate
from bench.processes import NotReady
from tests.agent.stub import build

FLEET = 8
RATE = 12.0
"""Requests per second."""
TOKENS = 160
"""Of an answer: a second of a simulated H100."""
BEFORE_SECONDS, AFTER_SECONDS = 4.0, 15.0
PATIENCE_SECONDS = 8.0
"""After which a client gives up, and its request is lost."""
LOOK_SECONDS = 0.2
LARGE_TOKENS = 8_000
EVERY_LARGE = 4
"""Where there are large prompts, every fourth is one."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        title: what it is called in the report.
        strike: brings it about, on the first of the nodes or on more of them.
        sick: whether the first one's engine is sick; else whoever is left out is so by mistake.
        large: whether some prompts are large, and only those must not go to the sick one.
        agents: whether it shows itself through agents.
    """

    title: str
    strike: Callable[[Sequence[Node]], None]
    sick: bool = True
    large: bool = False
    agents: bool = False


def _gpu_lost(fleet: Sequence[Node]) -> None:
    fleet[0].give("lost 0")
    fleet[0].fault(fail_rate=1.0)


def _xid_79(fleet: Sequence[Node]) -> None:
    fleet[0].give("xid 1 0 79")
    fleet[0].fault(freeze=True)


def _vram(fleet: Sequence[Node]) -> None:
    fleet[0].give(f"set memory_used 0 {VRAM_BYTES * 99 // 100}")
    fleet[0].fault(oom_tokens=2_000)


def _liars(fleet: Sequence[Node]) -> None:
    for node in fleet[: len(fleet) // 2]:
        node.give("lost 0")


FAULTS = {
    "killed": Fault("engine killed", lambda fleet: fleet[0].kill_engine()),
    "frozen": Fault("engine frozen (SIGSTOP)", lambda fleet: fleet[0].freeze()),
    "gpu_lost": Fault("GPU lost, 500 to all", _gpu_lost, agents=True),
    "xid_79": Fault("Xid 79, decode stands still", _xid_79, agents=True),
    "vram": Fault("VRAM 99 %, large prompts", _vram, large=True, agents=True),
    "slow": Fault("one 10 times slower", lambda fleet: fleet[0].fault(slow=10.0)),
    "silent": Fault("an agent silent", lambda fleet: fleet[0].kill_agent(), sick=False, agents=True),
    "liars": Fault("half of the agents lie", _liars, sick=False, agents=True),
}


@dataclass
class Seen:
    """What one run saw. Times are seconds since the fault.

    Attributes:
        asked: requests.
        lost: those without a whole answer, by what came instead.
        seconds: how long the answers took that came after the fault.
        last: when the sick engine was last seen to get what it must not; ``None`` where it never was.
        there: its share of the requests after the fault.
        mistaken: the largest share of healthy engines that was left out at any moment.
    """

    asked: int = 0
    lost: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    last: float | None = None
    there: float = 0.0
    mistaken: float = 0.0


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest of ``values`` that so large a share of them does not exceed; not a number where none are."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def row(fault: Fault, way: str, seen: Seen, after: float) -> str:
    """Return one line of the report."""
    still = seen.last is not None and seen.last > after - 1.5
    last = "-" if not fault.sick else "0" if seen.last is None else f">{after:.0f}" if still else f"{seen.last:.1f}"
    there = f"{seen.there:.1%}" if fault.sick else "-"
    return (
        f"{fault.title:28}  {way:11}  {len(seen.lost):4d} of {seen.asked:3d}  {last:>7}  {there:>6}  "
        f"{seen.mistaken:8.0%}  {quantile(seen.seconds, 0.5):6.2f} {quantile(seen.seconds, 0.99):6.2f}"
    )


HEADING = (
    f"{'fault':28}  {'with':11}  {'lost':>11}  {'last s':>7}  {'there':>6}  {'mistaken':>8}  {'p50 s':>6} {'p99 s':>6}"
)
LEGEND = """\
lost: requests without a whole answer; last: seconds until the last request went to the sick engine (where VRAM is full,
the last one that it failed); there: its share of the requests after the fault; mistaken: the largest share of healthy
engines that was left out at a time; p50, p99: seconds to the end of the answers after the fault."""


async def _ask(session: aiohttp.ClientSession, url: str, number: int, *, large: bool) -> str:
    """Send one request; return what was wrong with the answer, empty where nothing was."""
    text = f"request {number} " + "word " * (LARGE_TOKENS if large else 50)
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "stream": True,
    }
    try:
        async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
            whole = await answer.read()
    except TimeoutError:
        return "no answer in time"
    except aiohttp.ClientError as error:
        return f"broken off ({type(error).__name__})"
    if answer.status != 200:
        return f"status {answer.status}"
    if b'"error"' in whole:
        return "error in the stream"
    return "" if b"data: [DONE]" in whole else "no end"


class _Run:
    """One fault on one way."""

    def __init__(self, fault: Fault, way: Way, fleet: Sequence[Node], after: float) -> None:
        self.seen = Seen()
        self._fault, self._way, self._fleet, self._after = fault, way, fleet, after
        self._began = time.monotonic()
        self._struck = math.inf
        self._sick = ""

    async def run(self) -> Seen:
        timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
            asyncio.TaskGroup() as tasks,
        ):
            looking = tasks.create_task(self._look())
            asking = tasks.create_task(self._load(session))
            await asyncio.sleep(BEFORE_SECONDS)
            hosts = await asyncio.to_thread(self._way.hosts)
            most_asked_first = sorted(self._fleet, key=lambda node: -hosts[node.address].requests)
            await asyncio.to_thread(self._fault.strike, most_asked_first)
            if self._fault.sick:
                self._sick = most_asked_first[0].address
            self._struck = time.monotonic()
            await asking
            looking.cancel()
        return self.seen

    async def _load(self, session: aiohttp.ClientSession) -> None:
        async with asyncio.TaskGroup() as requests:
            for number in range(round((BEFORE_SECONDS + self._after) * RATE)):
                await asyncio.sleep(self._began + number / RATE - time.monotonic())
                requests.create_task(self._one(session, number))

    async def _one(self, session: aiohttp.ClientSession, number: int) -> None:
        sent = time.monotonic()
        large = self._fault.large and number % EVERY_LARGE == 0
        wrong = await _ask(session, f"http://127.0.0.1:{self._way.port}", number, large=large)
        self.seen.asked += 1
        if wrong:
            self.seen.lost.append(wrong)
        elif sent >= self._struck:
            self.seen.seconds.append(time.monotonic() - sent)

    async def _look(self) -> None:
        """See again and again who gets requests, and who is left out."""
        latest: dict[str, Host] = {}
        all_then, there_since, nothing = 0, 0, Host("", 0, 0, unhealthy=False)
        while True:
            with contextlib.suppress(NotReady):
                hosts = await asyncio.to_thread(self._way.hosts)
                out = await asyncio.to_thread(self._way.left_out)
                now, total = time.monotonic(), sum(host.requests for host in hosts.values())
                if now < self._struck:
                    all_then = total
                else:
                    before = latest.get(self._sick, nothing)
                    there = hosts.get(self._sick, before)
                    if there.errors > before.errors if self._fault.large else there.requests > before.requests:
                        self.seen.last = now - self._struck
                    there_since += max(0, there.requests - before.requests)
                    self.seen.there = there_since / max(1, total - all_then, there_since)
                    healthy = {node.address for node in self._fleet} - {self._sick}
                    missing = healthy & (out | (healthy - set(hosts)))
                    self.seen.mistaken = max(self.seen.mistaken, len(missing) / len(healthy))
                latest |= hosts
            await asyncio.sleep(LOOK_SECONDS)


@contextlib.contextmanager
def _agents(fault: Fault, way: Way, fleet: Sequence[Node]) -> Iterator[None]:
    try:
        if fault.agents and way.agents:
            for node in fleet:
                node.start_agent(way.agents)
            time.sleep(4.0)
        yield
    finally:
        for node in fleet:
            node.kill_agent()


def measure(
    fault: Fault, ways: Sequence[str], fleet: Sequence[Node], folder: Path, after: float
) -> Iterator[tuple[str, Seen]]:
    """Run ``fault`` on each of ``ways``, each begun anew."""
    for name in ways:
        place = Path(tempfile.mkdtemp(dir=folder))
        making = tidegate(place, fleet, "predicted_latency") if name == "tidegate" else envoy_alone(place, fleet)
        with making as way, _agents(fault, way, fleet):
            seen = asyncio.run(_Run(fault, way, fleet, after).run())
        for node in fleet:
            node.mend()
        yield way.name, seen


def _library(folder: Path) -> Path | None:
    """Build the driver's stand-in; ``None`` where that cannot be done."""
    try:
        return build(folder)
    except pytest.skip.Exception as missing:
        print(f"without GPU agents: {missing}", flush=True)
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__.partition("\n")[0])
    parser.add_argument("--fault", choices=FAULTS, action="append", help="only this one; repeat it for several")
    parser.add_argument("--with", dest="ways", choices=("tidegate", "envoy"), action="append", help="only with this")
    parser.add_argument("--seconds", type=float, default=AFTER_SECONDS, help="how long to look after a fault")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    asked = parser.parse_args(arguments)
    told: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="tidegate-faults-") as name:
        folder = Path(name)
        with nodes(folder, FLEET, _library(folder)) as fleet:
            print(HEADING, flush=True)
            for key in asked.fault or FAULTS:
                for way, seen in measure(
                    FAULTS[key], asked.ways or ("tidegate", "envoy"), fleet, folder, asked.seconds
                ):
                    print(row(FAULTS[key], way, seen, asked.seconds), flush=True)
                    why = {reason: seen.lost.count(reason) for reason in sorted(set(seen.lost))}
                    told.append({"fault": key, "with": way, "asked": seen.asked, "lost": why, "last": seen.last})
                    told[-1] |= {"there": seen.there, "mistaken": seen.mistaken, "seconds": seen.seconds}
    print(f"\n{LEGEND}")
    if asked.json is not None:
        asked.json.write_text(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
