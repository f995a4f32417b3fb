"""What one client with 1 MB prompts does to the small requests of others.

Run it as ``python -m bench.large_prompts``. Small requests come at a steady pace, first alone, then while another
process sends large prompts, one after the other without a pause; several rounds of both. Their p99 with, over that
without, is the figure: what parsing and counting a large prompt keeps the others waiting. Plain Envoy beside it shows
what the machine does.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvloop

from bench import load, report, sides
from bench.processes import NotReady

SMALL_BYTES, LARGE_BYTES = 1_024, 1_000_000
SMALL_CONNECTIONS, PAUSE_SECONDS = 4, 0.02
"""Up to 200 requests a second: far from what fills a core, so that the wait is for the large prompts."""
SETTLE_SECONDS = 0.5
DIFFERENT_LARGE = 16


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.large_prompts", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is made")
    parser.add_argument(
        "--sides", nargs="+", choices=("plain", "bare", "grpc", "h2"), default=["plain", "bare", "grpc", "h2"]
    )
    parser.add_argument("--large-to", type=int, help=argparse.SUPPRESS)  # this process is the client with large prompts
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    return parser.parse_args(argv)


def small(port: int, seconds: float, seed: int) -> load.Result:
    """Send small requests at their pace; return what came of them."""
    bodies = load.chat_bodies(SMALL_BYTES, 64, seed)
    return _loaded(port, bodies, SMALL_CONNECTIONS, seconds, PAUSE_SECONDS)


def _loaded(port: int, bodies: Sequence[bytes], connections: int, seconds: float, pause: float) -> load.Result:
    requests = [load.post(sides.CHAT, f"127.0.0.1:{port}", body) for body in bodies]
    run = load.run(
        "127.0.0.1", port, requests, connections=connections, seconds=seconds, max_requests=10**9, pause=pause
    )
    return uvloop.run(run)


@contextmanager
def large(port: int, seconds: float) -> Iterator[None]:
    """Have another process send large prompts meanwhile, for ``seconds`` at most."""
    command = [sys.executable, "-m", "bench.large_prompts", "--large-to", str(port), "--seconds", str(seconds)]
    process = subprocess.Popen(command, cwd=sides.ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it has made its prompts
        time.sleep(SETTLE_SECONDS)
        yield
    finally:
        process.terminate()
        process.communicate()


def measure(side: sides.Side, seconds: float, seed: int) -> dict[str, float]:
    """Return the latencies of small requests in milliseconds, and how many were not answered."""
    small(side.port, SETTLE_SECONDS, seed)
    alone = small(side.port, seconds, seed)
    with large(side.port, seconds + 30):
        beside = small(side.port, seconds, seed + 1_000)
    found = {"not_answered": float(alone.not_answered + beside.not_answered)}
    for name, result in (("alone", alone), ("beside", beside)):
        for percent in (50, 99):
            found[f"{name}_p{percent}_ms"] = (report.percentile(result.latencies, percent) or 0.0) * 1e3
    return found


def compare(options: argparse.Namespace, folder: Path) -> dict[str, list[dict[str, float]]]:
    """Return what was measured of each side in each round."""
    with ExitStack() as stack:
        _, ports = stack.enter_context(sides.engines(folder, 4))
        running = []
        for name in options.sides:
            if name == "plain":
                running.append(stack.enter_context(sides.plain(folder, name, ports, 2)))
            elif name == "bare":
                running.append(stack.enter_context(sides.bare(folder, name, ports, 2)))
            else:
                running.append(stack.enter_context(sides.tidegate(folder, name, ports, 2, "least_tokens", name)))
        found: dict[str, list[dict[str, float]]] = {side.name: [] for side in running}
        for number in range(options.rounds):
            for side in running:
                found[side.name].append(measure(side, options.seconds, number))
    return found


def table(found: dict[str, list[dict[str, float]]]) -> str:
    """Return the medians over the rounds as text."""
    lines = ["side    alone: p50 ms  p99 ms   beside: p50 ms  p99 ms   p99 ratio  not 200"]
    for name, rounds in found.items():
        middle = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        ratio = middle["beside_p99_ms"] / middle["alone_p99_ms"]
        alone = f"{middle['alone_p50_ms']:>13.2f} {middle['alone_p99_ms']:>7.2f}"
        beside = f"{middle['beside_p50_ms']:>16.2f} {middle['beside_p99_ms']:>7.2f}"
        lost = sum(one["not_answered"] for one in rounds)
        lines.append(f"{name:<7} {alone} {beside} {ratio:>11.2f} {lost:>8.0f}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison; return 0, or 1 if something was not answered or did not start."""
    options = arguments(argv)
    if options.large_to is not None:
        bodies = load.chat_bodies(LARGE_BYTES, DIFFERENT_LARGE, 1)
        print("ready", flush=True)
        _loaded(options.large_to, bodies, 1, options.seconds, 0.0)
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            found = compare(options, Path(folder))
    except NotReady as error:
        print(error, file=sys.stderr)
        return 1
    print(table(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if any(one["not_answered"] for rounds in found.values() for one in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
