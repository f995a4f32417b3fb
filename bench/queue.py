"""What a queue is worth under overload, beside none, a plain FIFO, and Envoy's own circuit breaker; and what it costs.

Simulated engines with small batches serve in real time behind a real Envoy. Clients of three classes (one in ten
urgent, five normal, four batch work) ask for several times what the engines can serve, do not wait for one another, and
leave after ``--patience`` seconds. An answer is good whose first token comes within ``--ttft`` seconds.

=================  ====================================================================================================
side               what bounds what the engines get
=================  ====================================================================================================
``no queue``       nothing: Envoy sends all on, and it waits in the engines
``fifo``           Envoy, with as many connections as the batches have places; what finds none waits in its order
``breaker``        the same, and nearly nothing waits: what finds no place is answered with 503 at once
``tidegate off``   Tidegate chooses the endpoint, and its queue is switched off
``tidegate``       Tidegate's queue
=================  ====================================================================================================

Run it on a machine that does nothing else: engines that lack CPU are late.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench import envoy, queue_cost
from bench.overload import Answer, Clients, Summary, summary, workload
from bench.processes import free_ports, started
from tests.e2e.stack import configuration, engines, fetch, until, up
from tidegate.runtime.callers import hashed
from tidegate.simulator.profiles import PROFILES
from tidegate.simulator.virtual import capacity
from tidegate.simulator.virtual.fleet import FleetSpec
from tidegate.simulator.virtual.percentiles import Percentiles

SIDES = ("no queue", "fifo", "breaker", "tidegate off", "tidegate")
UNBOUNDED = 1_000_000
CLASSES = {10: "urgent", 0: "normal", -1: "batch"}
KEYS = {"gold": f"sk-bench-gold-{'0' * 32}", "standard": f"sk-bench-standard-{'0' * 32}"}
HEADERS: Mapping[int, Mapping[str, str]] = {
    10: {"authorization": f"Bearer {KEYS['gold']}"},
    0: {"authorization": f"Bearer {KEYS['standard']}"},
    -1: {"authorization": f"Bearer {KEYS['standard']}", "x-request-priority": "-1"},
}
START_SECONDS = 30.0


class Reached(NamedTuple):
    """A side that runs: what clients ask, and the processes whose CPU time it costs, by role."""

    url: str
    processes: Mapping[str, psutil.Process]


class Run(NamedTuple):
    """One side under one load.

    Attributes:
        side: its name.
        load: requests, as a multiple of what the engines can serve.
        seconds: over which they came.
        total: what came of all.
        classes: what came of each class, by its name.
        cpu_us: microseconds of CPU for a request, by process.
    """

    side: str
    load: float
    seconds: float
    total: Summary
    classes: Mapping[str, Summary]
    cpu_us: Mapping[str, float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    asked = _asked(arguments)
    names = [asked.profile] * asked.engines
    spec = FleetSpec(tuple(replace(PROFILES[name], max_num_seqs=asked.batch) for name in names))
    options = ("--max-num-seqs", str(asked.batch), "--speed", str(asked.speed), "--max-queue", "100000")
    drawn = workload(asked.requests, 1.0, asked.scale, asked.seed)
    served = capacity.requests_per_second(spec, drawn) * asked.speed
    print(f"{asked.engines} engines ({asked.profile}, {asked.batch} in a batch) can serve {served:.1f} requests/s")
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="tidegate-queue-") as name:
        folder = Path(name)
        with engines(folder, *names, options=options) as ports:
            for side in asked.sides:
                (folder / side).mkdir()
                with reached(side, folder / side, ports, asked) as there:
                    for load in asked.loads:
                        rate = load * served
                        seconds = asked.warm_up + asked.seconds
                        sent = workload(round(rate * seconds), rate, asked.scale, asked.seed)
                        clients = Clients(there.url, HEADERS, asked.patience)
                        before = _cpu(there.processes)
                        answers = asyncio.run(clients.ask(sent))
                        after = _cpu(there.processes)
                        used = {role: (took - before[role]) / len(answers) for role, took in after.items()}
                        counted = [
                            one
                            for one, arrival in zip(answers, sent.arrivals, strict=True)
                            if arrival.at >= asked.warm_up
                        ]
                        runs.append(_run(side, load, asked.seconds, counted, asked.ttft, used))
                        print(*told(runs[-1]), sep="\n", flush=True)
                        until(lambda: not any(map(_busy, ports)), 60, "the engines are idle")
    print("", *verdict(runs), sep="\n")
    costs = {waiting: queue_cost.cost(waiting, 500) for waiting in asked.waiting}
    for waiting, (straight, queued) in costs.items():
        print(f"CPU of admission and decision: {straight:.0f} us without, {queued:.0f} us with {waiting} waiting")
    if asked.json is not None:
        found = {"runs": [_plain(run) for run in runs], "cost_us": costs}
        asked.json.write_text(json.dumps(found, indent=2))
    return 0


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.queue", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", dest="sides", action="append", choices=SIDES, help="repeat it for several")
    parser.add_argument(
        "--load", dest="loads", action="append", type=float, help="of what engines can serve; repeat it"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="over which requests come, for each load")
    parser.add_argument(
        "--warm-up", type=float, default=5.0, help="seconds of requests before those, which do not count"
    )
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--profile", choices=PROFILES, default="a100")
    parser.add_argument("--batch", type=int, default=8, help="requests in an engine's batch")
    parser.add_argument("--speed", type=float, default=0.4, help="of the engines, as a share of their profile's")
    parser.add_argument("--scale", type=float, default=0.15, help="of prompts and answers: by what to multiply them")
    parser.add_argument("--requests", type=int, default=2_000, help="from which it is reckoned what engines can serve")
    parser.add_argument("--ttft", type=float, default=2.0, help="seconds to the first token of a good answer")
    parser.add_argument("--wait", type=float, default=1.5, help="seconds that requests may wait in Tidegate's queue")
    parser.add_argument("--kept", type=float, default=0.15, help="share of places that may be kept for the urgent")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds after which clients leave")
    parser.add_argument("--policy", default="predicted_latency")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--waiting", type=int, action="append", help="of how many the cost is told; repeat it")
    parser.add_argument("--json", type=Path, help="a file to write all figures to")
    asked = parser.parse_args(arguments)
    asked.sides = asked.sides or list(SIDES)
    asked.loads = asked.loads or [0.5, 5.0]
    asked.waiting = asked.waiting or [1, 1_000, 5_000]
    return asked


@contextlib.contextmanager
def reached(side: str, folder: Path, ports: Sequence[int], asked: argparse.Namespace) -> Iterator[Reached]:
    """Run ``side`` in front of the engines at ``ports``."""
    if side.startswith("tidegate"):
        with up(folder, settings(ports, asked, queue=side == "tidegate")) as stack:
            parts = {"envoy": stack.child("envoy"), "control": stack.child("serve")}
            yield Reached(f"{stack.clients}/completions", parts)
        return
    admin, port = free_ports(2)
    config = folder / "envoy.json"
    config.write_text(envoy.plain(admin, port, ports, thresholds(side, asked.engines * asked.batch)))
    with started(f"Envoy ({side})", envoy.command(config, 1), folder / "envoy.log") as running:
        running.wait_for(port, "/health", START_SECONDS)
        yield Reached(f"http://127.0.0.1:{port}/v1/completions", {"envoy": psutil.Process(running.process.pid)})


def thresholds(side: str, places: int) -> dict[str, int]:
    """Return the bounds of Envoy's circuit breaker, for engines with so many places in their batches together."""
    if side == "no queue":
        return {"max_connections": UNBOUNDED, "max_pending_requests": UNBOUNDED, "max_requests": UNBOUNDED}
    # One that is being connected for is pending, so none at all would let nothing through.
    pending = UNBOUNDED if side == "fifo" else max(1, places // 4)
    return {"max_connections": places, "max_pending_requests": pending, "max_requests": UNBOUNDED}


def settings(ports: Sequence[int], asked: argparse.Namespace, *, queue: bool) -> dict[str, Any]:
    """Return the configuration of Tidegate: a tier for each class of clients, and a queue or none."""
    config = configuration(ports, asked.policy)
    (pool,) = config["pools"]
    for endpoint in pool["endpoints"]:
        endpoint |= {"gpu": asked.profile, "max_running": asked.batch}
    pool["queue"] = {
        "enabled": queue,
        "max_wait_seconds": asked.wait,
        "batch_max_wait_seconds": asked.patience,
        "max_requests": 5_000,
        "kept_share": asked.kept,
    }
    config["tiers"] = [{"name": "gold", "priority": 10}, {"name": "standard", "priority": 0}]
    config["tenants"] = [{"name": name, "tier": name} for name in KEYS]
    config["keys"] = [{"name": name, "tenant": name, "hash": hashed(key)} for name, key in KEYS.items()]
    return config


def _busy(port: int) -> bool:
    page = fetch(f"http://127.0.0.1:{port}/metrics")[1]
    gauges = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
    return any(float(line.rsplit(" ", 1)[1]) > 0 for line in page.splitlines() if line.startswith(gauges))


def _cpu(processes: Mapping[str, psutil.Process]) -> dict[str, float]:
    times = {role: process.cpu_times() for role, process in processes.items()}
    return {role: took.user + took.system for role, took in times.items()}


def _run(
    side: str, load: float, seconds: float, answers: Sequence[Answer], ttft: float, used: Mapping[str, float]
) -> Run:
    classes = {
        name: summary([one for one in answers if one.priority == priority], seconds, ttft)
        for priority, name in CLASSES.items()
    }
    cpu = {role: took * 1e6 for role, took in used.items()}
    return Run(side, load, seconds, summary(answers, seconds, ttft), classes, cpu)


def told(run: Run) -> Iterator[str]:
    """Say, line by line, what came of a run."""
    cpu = ", ".join(f"{role} {took:.0f} us" for role, took in run.cpu_us.items())
    yield f"\n{run.side}, {run.load:g} times what can be served: {run.total.per_second:.1f} good/s; CPU/request: {cpu}"
    for name, found in (*run.classes.items(), ("all", run.total)):
        statuses = ", ".join(f"{count} {status or 'left'}" for status, count in found.statuses.items())
        share = found.good / max(1, found.requests)
        yield f"  {name:7}{found.requests:6} sent, {share:6.1%} good, TTFT {_times(found.ttft)}; {statuses}"
    for name, found in run.classes.items():
        if found.waited.p50 is not None:
            yield f"  {name:7}waited {_times(found.waited)}; estimates were off by {_times(found.error)}"
            if found.off.p50 is not None:
                yield f"         which is p50 {found.off.p50:.0%} p90 {found.off.p90:.0%} of the wait, or of a second"


def _times(found: Percentiles) -> str:
    if found.p50 is None:
        return "-"
    return f"p50 {found.p50:.2f} p90 {found.p90:.2f} p99 {found.p99:.2f} s"


def verdict(runs: Sequence[Run]) -> Iterator[str]:
    """Say how each side does under overload, beside the most that any load brought any side."""
    peak = max(run.total.per_second for run in runs)
    # By the least load: at what can just be served, there is a queue already.
    by_load = sorted(runs, key=lambda run: -run.load)
    calm = {run.side: run.classes["urgent"].ttft.p99 for run in by_load if run.load <= 1.0}
    for run in runs:
        if run.load <= 1.0:
            continue
        share = run.total.per_second / max(peak, 1e-9)
        line = f"{run.side}: {share:.0%} of the most good answers a second of any side ({peak:.1f})"
        now, before = run.classes["urgent"].ttft.p99, calm.get(run.side)
        if now is not None and before:
            line += f"; urgent requests' TTFT p99 {now / before:.1f} times what it is without overload"
        yield line


def _plain(run: Run) -> dict[str, Any]:
    return {
        **run._asdict(),
        "total": asdict(run.total),
        "classes": {name: asdict(found) for name, found in run.classes.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
