"""What the request path costs: plain Envoy and Envoy with Tidegate, in turn, in one run, on one machine.

    python -m bench.request_path [--seconds 5] [--rounds 3] [--connections 16] [--body-bytes 4096]

Both sides stand in front of the same endpoints, which a third Envoy answers for at once, so that the engine is cheap.
Both stay up for the whole run and are measured one after the other in each round, so that what else happens on the
machine hits both. ``--against plain`` measures plain Envoy against itself: how far its ratios are from 1 is the noise.
``--against transports`` measures Tidegate on grpc against Tidegate on h2; ``--against all``
measures plain Envoy, Envoy with an ext_proc that answers at once, and Tidegate on both transports.

Microseconds are CPU time (user and system, from /proc) per answered request, Tidegate's children included; `load` is
this program itself. Latencies are those of a closed loop: with all cores busy they hold the wait for a core.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import uvloop

from bench import envoy, load, report, sides
from bench.processes import NotReady, cpu_seconds

WARM_UP_SECONDS = 0.5
DIFFERENT_BODIES = 64
DIFFERENT_BYTES = 16_777_216


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.request_path", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one side's measurement in one round")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side is measured")
    parser.add_argument("--connections", type=int, default=16, help="connections, each with one request in flight")
    parser.add_argument("--body-bytes", type=int, nargs="+", default=[4096], help="sizes of a request's body")
    parser.add_argument("--max-requests", type=int, default=1_000_000, help="bound on the requests of one measurement")
    parser.add_argument("--endpoints", type=int, default=4, help="how many engines there are to choose from")
    parser.add_argument("--threads", type=int, default=2, help="worker threads of each Envoy under test")
    parser.add_argument("--policy", default="least_tokens", help="Tidegate's policy")
    parser.add_argument("--transport", choices=("grpc", "h2"), default="h2", help="what serves ext_proc in Tidegate")
    parser.add_argument(
        "--against", choices=("tidegate", "transports", "plain", "all"), default="tidegate", help="the other sides"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    options = parser.parse_args(argv)
    for name in ("seconds", "rounds", "connections", "max_requests", "endpoints", "threads"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} must be positive")
    try:
        for size in options.body_bytes:
            load.chat_bodies(size, 1, 0)
    except ValueError as error:
        parser.error(f"--body-bytes: {error}")
    return options


def machine() -> dict[str, Any]:
    """Return what the figures depend on and what they do not say themselves."""
    said = subprocess.run([envoy.binary(), "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load_average": " ".join(f"{average:.2f}" for average in os.getloadavg()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "envoy": said.split("version:")[-1].strip().split("/")[1],
        "tidegate": version("tidegate"),
        "commit": _commit(),
        "grpcio": version("grpcio"),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _commit() -> str | None:
    """Return the commit of this working tree, marked where it differs; None without git."""
    command = ["git", "-C", str(sides.ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def measure(side: sides.Side, engine_pid: int, options: argparse.Namespace, size: int, seed: int) -> report.Figures:
    """Load one side with bodies of ``size`` bytes, first to warm it up, then for the record."""
    host = f"127.0.0.1:{side.port}"
    different = max(4, min(DIFFERENT_BODIES, DIFFERENT_BYTES // size))
    requests = [load.post(sides.CHAT, host, body) for body in load.chat_bodies(size, different, seed)]

    def loaded(seconds: float) -> load.Result:
        return uvloop.run(
            load.run(
                "127.0.0.1",
                side.port,
                requests,
                connections=options.connections,
                seconds=seconds,
                max_requests=options.max_requests,
            )
        )

    loaded(WARM_UP_SECONDS)
    pids = {**side.pids, "engine": engine_pid, "load": os.getpid()}
    before = cpu_seconds({name: pid for name, pid in pids.items() if name != "load"})
    before["load"] = time.process_time()
    result = loaded(options.seconds)
    after = cpu_seconds({name: pid for name, pid in pids.items() if name != "load"})
    after["load"] = time.process_time()
    return report.figures(result, {name: after[name] - before[name] for name in after})


@dataclass(frozen=True, slots=True)
class Compared:
    """All rounds with bodies of one size: figures and load averages by side."""

    body_bytes: int
    rounds: list[dict[str, report.Figures]]
    loads: list[dict[str, float]]


def compare(options: argparse.Namespace, folder: Path) -> list[Compared]:
    """Run all sides; return what was measured for each size of body."""
    with ExitStack() as stack:
        engine_pid, ports = stack.enter_context(sides.engines(folder, options.endpoints))

        def plain(name: str) -> sides.Side:
            return stack.enter_context(sides.plain(folder, name, ports, options.threads))

        def tidegate(name: str, transport: str) -> sides.Side:
            running = sides.tidegate(folder, name, ports, options.threads, options.policy, transport)
            return stack.enter_context(running)

        match options.against:
            case "plain":
                measured = [plain("plain"), plain("plain again")]
            case "transports":
                measured = [tidegate("grpc", "grpc"), tidegate("h2", "h2")]
            case "all":
                bare = stack.enter_context(sides.bare(folder, "bare", ports, options.threads))
                measured = [plain("plain"), bare, tidegate("grpc", "grpc"), tidegate("h2", "h2")]
            case _:
                measured = [plain("plain"), tidegate("tidegate", options.transport)]
        return [_rounds(measured, engine_pid, options, size) for size in options.body_bytes]


def _rounds(measured: Sequence[sides.Side], engine_pid: int, options: argparse.Namespace, size: int) -> Compared:
    done = Compared(size, [], [])
    for number in range(options.rounds):
        figures: dict[str, report.Figures] = {}
        averages: dict[str, float] = {}
        # Some machines get slower while they are busy (measured: 14 % within a round), so each side goes first in turn.
        first = number % len(measured)
        for side in (*measured[first:], *measured[:first]):
            place = f"{size} bytes, round {number + 1} of {options.rounds}"
            print(f"{place}: {side.name}", file=sys.stderr, flush=True)
            figures[side.name] = measure(side, engine_pid, options, size, seed=number)
            averages[side.name] = os.getloadavg()[0]
        done.rounds.append(figures)
        done.loads.append(averages)
    return done


def main(argv: list[str] | None = None) -> int:
    """Run the comparison; return 0, or 1 if something was not answered or did not start."""
    options = arguments(argv)
    about = machine()
    settings = {name: value for name, value in vars(options).items() if name != "json"}
    on_sigterm = signal.signal(signal.SIGTERM, _leave)
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            compared = compare(options, Path(folder))
    except NotReady as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, on_sigterm)
    for title, facts in (("machine", about), ("settings", settings)):
        print(f"{title}: " + ", ".join(f"{name} {value}" for name, value in facts.items()))
    for one in compared:
        print(f"bodies of {one.body_bytes} bytes:")
        print(report.table(one.rounds, one.loads))
    if options.json:
        sizes = [{"body_bytes": one.body_bytes, **report.as_json(one.rounds, one.loads)} for one in compared]
        found = {"machine": about, "settings": settings, "sizes": sizes}
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if any(side.not_answered for one in compared for figures in one.rounds for side in figures.values()) else 0


def _leave(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """Unwind on SIGTERM, so that everything started is ended."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
