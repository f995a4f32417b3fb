"""Every policy on two public traces, a homogeneous and a mixed fleet, at three loads: who is best, and by how much.

Each trace is split in the middle, by time: policies are tuned on the first half, and this reports the second. The first
tenth of that is a warm-up, in which what learns may learn. Reports of the engines arrive a second late.
"""

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.verdicts import Cell, Figures, verdicts
from tidegate.simulator.virtual import capacity, traces
from tidegate.simulator.virtual.conditions import Conditions
from tidegate.simulator.virtual.fleet import FleetSpec
from tidegate.simulator.virtual.report import SLO, Report, simulate
from tidegate.simulator.virtual.simulation import policies
from tidegate.simulator.virtual.workload import Workload

FLEETS = {
    "homogeneous": FleetSpec.parse("a100:16"),
    "mixed": FleetSpec.parse("h100:4,a100:6,rtx4090:6"),
}
LOADS = (0.6, 0.8, 0.95)
WARMUP = 0.1
LATE = Conditions(scrape_interval=1.0, scrape_delay=1.0)
FILES = {"azure": "azure_2023_conversation.csv", "mooncake": "mooncake_fast25_synthetic.jsonl"}
SLOS = {"azure": SLO(ttft=1.0, tpot=0.1), "mooncake": SLO(ttft=5.0, tpot=0.2)}
"""Mooncake's prompts are ten times as long."""


class _Parsed(NamedTuple):
    folder: Path
    traces: tuple[str, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    half: str
    loads: tuple[float, ...]
    json: Path | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    asked = _arguments(arguments)
    cells: dict[Cell, dict[str, Figures]] = {}
    for trace, file in FILES.items():
        if trace not in asked.traces:
            continue
        if not (asked.folder / file).exists():
            print(f"{trace}: skipped, {asked.folder / file} is not there", flush=True)
            continue
        begin, end = (0.0, 0.5) if asked.half == "train" else (0.5, 1.0)
        workload = traces.read(asked.folder / file).part(begin, end)
        for fleet, spec in FLEETS.items():
            for load in asked.loads:
                scaled = capacity.at_utilisation(spec, workload, load)
                cell = Cell(trace, fleet, load)
                cells[cell] = _run(spec, scaled, asked, SLOS[trace])
                print(f"\n{cell}: {len(scaled.arrivals)} requests, {scaled.rate:.1f}/s, on {spec}")
                print(_table(cells[cell]), flush=True)
    if cells:
        print("\n" + "\n".join(verdicts(cells)))
    if asked.json is not None:
        rows = [
            {**cell._asdict(), "policy": name, **one._asdict()}
            for cell, of in cells.items()
            for name, one in of.items()
        ]
        asked.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


def _arguments(arguments: Sequence[str] | None) -> _Parsed:
    parser = argparse.ArgumentParser(prog="python -m bench.policies", description=__doc__)
    folder = os.environ.get("TIDEGATE_TRACES", "traces")
    parser.add_argument("--traces", type=Path, default=Path(folder), help="folder of the traces (or TIDEGATE_TRACES)")
    parser.add_argument("--trace", action="append", choices=tuple(FILES), help="one of them; without it, both")
    parser.add_argument("--policy", action="append", choices=policies(), help="one of them; repeat it; without it, all")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each, whose medians are shown")
    parser.add_argument("--load", type=float, action="append", help="share of the capacity; repeat it")
    parser.add_argument("--half", choices=("train", "test"), default="test", help="half of the traces")
    parser.add_argument("--json", type=Path, help="file for the figures")
    found = parser.parse_args(arguments)
    names = tuple(found.policy or policies())
    seeds = tuple(range(1, found.seeds + 1))
    return _Parsed(
        found.traces, tuple(found.trace or FILES), names, seeds, found.half, tuple(found.load or LOADS), found.json
    )


def _run(spec: FleetSpec, workload: Workload, asked: _Parsed, slo: SLO) -> dict[str, Figures]:
    figures = {}
    for policy in asked.policies:
        if sys.stderr.isatty():
            print(f"  {policy} ...", end="\r", file=sys.stderr, flush=True)
        figures[policy] = _median([simulate(spec, workload, policy, seed, LATE, slo, WARMUP) for seed in asked.seeds])
    return figures


def _median(runs: Sequence[Report]) -> Figures:
    def over(values: Sequence[float | None]) -> float:
        return statistics.median(math.inf if value is None else value for value in values)

    return Figures(
        ttft_p50=over([run.ttft.p50 for run in runs]),
        ttft_p99=over([run.ttft.p99 for run in runs]),
        tpot_p99=over([run.tpot.p99 for run in runs]),
        end_to_end=over([run.end_to_end.mean for run in runs]),
        goodput=over([run.goodput for run in runs]),
        not_answered=over([run.requests - run.endings["answered"] for run in runs]),
        hits=over([run.cache_hit_rate for run in runs]),
    )


def _table(figures: Mapping[str, Figures]) -> str:
    titles = ("policy", "TTFT p50 s", "TTFT p99 s", "TPOT p99 ms", "all mean s", "good %", "not ok", "hits %")
    rows = [titles]
    for name, one in figures.items():
        times = f"{one.ttft_p50:.3f}", f"{one.ttft_p99:.3f}", f"{one.tpot_p99 * 1e3:.0f}", f"{one.end_to_end:.3f}"
        rows.append((name, *times, f"{one.goodput:.1%}"[:-1], f"{one.not_answered:.0f}", f"{one.hits:.1%}"[:-1]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


if __name__ == "__main__":
    sys.exit(main())
