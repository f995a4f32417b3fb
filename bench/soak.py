"""Whether a control plane grows with the requests that it has served, of which one in ten was given up by its client.

Run it as ``python -m bench.soak``. What the process holds is looked at after every ten thousand requests: memory is
its proportional set size, tasks and reservations are what its own metrics say. The slopes are least squares over the
samples after the warm-up, per 10,000 requests.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import uvloop

from bench import load, report, sides
from bench.processes import NotReady, cpu_seconds, page

SLOPE_PER = 10_000
WARM_UP_SHARE = 0.25
"""Of the samples, how many are left out of the slopes: caches fill, and the allocator finds its size."""
SETTLE_SECONDS = 3.0
BODY_BYTES = 1_024
DIFFERENT_BODIES = 4_096
KINDS = ("pss_kb", "rss_kb", "fds", "threads", "tasks", "envoy_rss_kb")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--requests", type=int, default=200_000, help="how many requests are sent to each side")
    parser.add_argument("--every", type=int, default=10_000, help="requests from one sample to the next")
    parser.add_argument("--leave-every", type=int, default=10, help="of how many requests one is given up; 0: none")
    parser.add_argument("--connections", type=int, default=16, help="connections, each with one request in flight")
    parser.add_argument("--transports", nargs="+", choices=("grpc", "h2"), default=["grpc", "h2"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    return parser.parse_args(argv)


def sample(side: sides.Side) -> dict[str, float]:
    """Return what the control plane holds now; ``envoy_rss_kb`` is Envoy's."""
    proc = Path("/proc", str(side.pids["control"]))
    rollup = _fields(proc / "smaps_rollup")
    gauges = _fields_of(page(side.admin_port, "/metrics"), " ")
    return {
        "pss_kb": rollup["Pss"],
        "rss_kb": rollup["Rss"],
        "fds": len([*(proc / "fd").iterdir()]),
        "threads": len([*(proc / "task").iterdir()]),
        "tasks": gauges["tidegate_tasks"],
        "reservations": gauges["tidegate_inflight_reservations"],
        "streams": gauges["tidegate_ext_proc_inflight_streams"],
        "envoy_rss_kb": _fields(Path("/proc", str(side.pids["envoy"]), "smaps_rollup"))["Rss"],
    }


def _fields(path: Path) -> dict[str, float]:
    return _fields_of(path.read_text(), ":")


def _fields_of(text: str, between: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(between)
        number = value.split()[:1]
        if number and number[0].replace(".", "", 1).isdigit():
            found[name] = float(number[0])
    return found


def slope(values: Sequence[float], every: int) -> float:
    """Return how much ``values``, one for each ``every`` requests, grow in ``SLOPE_PER`` requests (least squares)."""
    if len(values) < 2:
        return 0.0
    return statistics.linear_regression(range(len(values)), values).slope * SLOPE_PER / every


def soak(side: sides.Side, options: argparse.Namespace) -> dict[str, object]:
    """Load one side; return its samples, slopes, and what was left at the end."""
    bodies = load.chat_bodies(BODY_BYTES, DIFFERENT_BODIES, 0)
    requests = [load.post(sides.CHAT, f"127.0.0.1:{side.port}", body) for body in bodies]
    samples, not_answered, left, before = [sample(side)], 0, 0, cpu_seconds({"control": side.pids["control"]})
    started = time.monotonic()
    for number in range(options.requests // options.every):
        run = load.run(
            *("127.0.0.1", side.port, requests[number % 7 :]),
            connections=options.connections,
            seconds=600.0,
            max_requests=options.every,
            leave_every=options.leave_every,
        )
        result = uvloop.run(run)
        not_answered += result.not_answered
        left += result.left
        samples.append(sample(side))
        print(f"{side.name}: {(number + 1) * options.every} {samples[-1]}", file=sys.stderr, flush=True)
    seconds = time.monotonic() - started
    cpu = cpu_seconds({"control": side.pids["control"]})["control"] - before["control"]
    time.sleep(SETTLE_SECONDS)
    last = sample(side)
    counted = samples[1 + round(WARM_UP_SHARE * len(samples)) :]
    return {
        "requests": options.requests,
        "left": left,
        "not_answered": not_answered,
        "requests_per_second": options.requests / seconds,
        "control_us": cpu / options.requests * 1e6,
        "first": counted[0],
        "last": last,
        "slopes": {kind: slope([one[kind] for one in counted], options.every) for kind in KINDS},
        "samples": samples,
    }


def table(found: dict[str, dict[str, object]]) -> str:
    """Return the slopes, and what is left at the end, as text."""
    rows = [["side", *(f"{kind}/10k" for kind in KINDS), "reservations left", "streams left", "left", "not 200"]]
    for name, one in found.items():
        slopes, last = one["slopes"], one["last"]
        assert isinstance(slopes, dict)
        assert isinstance(last, dict)
        cells = [f"{slopes[kind]:+.2f}" for kind in KINDS]
        ends = [f"{last['reservations']:.0f}", f"{last['streams']:.0f}", str(one["left"]), str(one["not_answered"])]
        rows.append([name, *cells, *ends])
    return report.aligned(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the soak; return 0, or 1 if something was not answered, is left, or did not start."""
    options = arguments(argv)
    found: dict[str, dict[str, object]] = {}
    try:
        for transport in options.transports:
            with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
                folder = Path(name)
                with (
                    sides.engines(folder, 4) as (_, ports),
                    sides.tidegate(folder, transport, ports, 2, "least_tokens", transport) as side,
                ):
                    found[transport] = soak(side, options)
    except NotReady as error:
        print(error, file=sys.stderr)
        return 1
    about = f"python {sys.version.split()[0]}, grpcio {version('grpcio')}"
    print(f"{about}, {options.requests} requests to each side, one in {options.leave_every} given up")
    print(table(found))
    if options.json:
        options.json.write_text(json.dumps({"about": about, **found}, indent=2) + "\n")
    whole = all(
        not one["not_answered"] and not one["last"]["reservations"] and not one["last"]["streams"]  # type: ignore[index]
        for one in found.values()
    )
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
