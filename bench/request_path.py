"""What the request path costs: plain Envoy and Envoy with Tidegate, in turn, in one run, on one machine.

    python -m bench.request_path [--seconds 5] [--rounds 3] [--connections 16] [--body-bytes 4096]

Both sides stand in front of the same endpoints, which a third Envoy answers for at once, so that the engine is cheap.
Both stay up for the whole run and are measured one after the other in each round, so that what else happens on the
machine hits both. ``--against plain`` measures plain Envoy against itself: how far its ratios are from 1 is the noise.
``--against transports`` measures Tidegate on grpc against Tidegate on h2.

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
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import uvloop

from bench import envoy, load, report, sides
from bench.processes import NotReady, cpu_seconds

WARM_UP_SECONDS = 0.5
DIFFERENT_BODIES = 64


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.request_path", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one side's measurement in one round")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side is measured")
    parser.add_argument("--connections", type=int, default=16, help="connections, each with one request in flight")
    parser.add_argument("--body-bytes", type=int, default=4096, help="size of a request's body")
    parser.add_argument("--max-requests", type=int, default=1_000_000, help="bound on the requests of one measurement")
    parser.add_argument("--endpoints", type=int, default=4, help="how many engines there are to choose from")
    parser.add_argument("--threads", type=int, default=2, help="worker threads of each Envoy under test")
    parser.add_argument("--policy", default="least_tokens", help="Tidegate's policy")
    parser.add_argument("--transport", choices=("grpc", "h2"), default="grpc", help="what serves ext_proc in Tidegate")
    parser.add_argument(
        "--against", choices=("tidegate", "transports", "plain"), default="tidegate", help="the second side"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    options = parser.parse_args(argv)
    for name in ("seconds", "rounds", "connections", "max_requests", "endpoints", "threads"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} must be positive")
    try:
        load.chat_bodies(options.body_bytes, 1, 0)
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


def measure(side: sides.Side, engine_pid: int, options: argparse.Namespace, seed: int) -> report.Figures:
    """Load one side, first to warm it up, then for the record."""
    host = f"127.0.0.1:{side.port}"
    requests = [
        load.post(sides.CHAT, host, body) for body in load.chat_bodies(options.body_bytes, DIFFERENT_BODIES, seed)
    ]

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


def compare(
    options: argparse.Namespace, folder: Path
) -> tuple[list[dict[str, report.Figures]], list[dict[str, float]]]:
    """Run both sides; return the figures, and the load averages, of each round by side."""
    rounds, loads = [], []
    with ExitStack() as stack:
        engine_pid, ports = stack.enter_context(sides.engines(folder, options.endpoints))

        def plain(name: str) -> sides.Side:
            return stack.enter_context(sides.plain(folder, name, ports, options.threads))

        def tidegate(name: str, transport: str) -> sides.Side:
            running = sides.tidegate(folder, name, ports, options.threads, options.policy, transport)
            return stack.enter_context(running)

        match options.against:
            case "plain":
                both = plain("plain"), plain("plain again")
            case "transports":
                both = tidegate("grpc", "grpc"), tidegate("h2", "h2")
            case _:
                both = plain("plain"), tidegate("tidegate", options.transport)
        for number in range(options.rounds):
            figures: dict[str, report.Figures] = {}
            averages: dict[str, float] = {}
            for side in both:
                print(f"round {number + 1} of {options.rounds}: {side.name}", file=sys.stderr, flush=True)
                figures[side.name] = measure(side, engine_pid, options, seed=number)
                averages[side.name] = os.getloadavg()[0]
            rounds.append(figures)
            loads.append(averages)
    return rounds, loads


def main(argv: list[str] | None = None) -> int:
    """Run the comparison; return 0, or 1 if something was not answered or did not start."""
    options = arguments(argv)
    about = machine()
    settings = {name: value for name, value in vars(options).items() if name != "json"}
    on_sigterm = signal.signal(signal.SIGTERM, _leave)
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            rounds, loads = compare(options, Path(folder))
    except NotReady as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, on_sigterm)
    for title, facts in (("machine", about), ("settings", settings)):
        print(f"{title}: " + ", ".join(f"{name} {value}" for name, value in facts.items()))
    print(report.table(rounds, loads))
    if options.json:
        found = {"machine": about, "settings": settings, **report.as_json(rounds, loads)}
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if any(one.not_answered for figures in rounds for one in figures.values()) else 0


def _leave(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """Unwind on SIGTERM, so that everything started is ended."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
