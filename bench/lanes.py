"""What lanes are worth: the time to the first token of small and of large prompts, without lanes and with them.

Small chats, and one prompt in a hundred of 50,000 to 100,000 tokens, under a virtual clock. Reports of the engines
arrive a second late; the first tenth of the requests is a warm-up.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from typing import NamedTuple

from tidegate.scheduling.lanes import Lane
from tidegate.simulator.virtual import capacity, synthetic
from tidegate.simulator.virtual.conditions import Conditions
from tidegate.simulator.virtual.fleet import FleetSpec
from tidegate.simulator.virtual.outcome import Outcome
from tidegate.simulator.virtual.percentiles import Percentiles
from tidegate.simulator.virtual.simulation import Simulation, policies
from tidegate.simulator.virtual.workload import Workload

FLEETS = {"homogeneous": FleetSpec.parse("a100:16"), "mixed": FleetSpec.parse("h100:6,a100:10")}
"""No RTX 4090: its KV cache holds no such prompt."""

LATE = Conditions(scrape_interval=1.0, scrape_delay=1.0)
WARMUP = 0.1
RATE = 20.0


class Figures(NamedTuple):
    """Seconds: to the first token of small and large prompts, and per token of small ones; and how many failed."""

    small_p50: float
    small_p99: float
    small_tpot_p99: float
    large_p50: float
    large_p99: float
    not_answered: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.lanes", description=__doc__)
    parser.add_argument("--workload", choices=("documents", "long-tail"), default="documents")
    parser.add_argument("--requests", type=int, default=8_000)
    parser.add_argument("--lane", type=Lane.parse, default=Lane(20_000, 0.25), help="ABOVE_TOKENS:SHARE")
    parser.add_argument("--load", type=float, action="append", help="share of the capacity; repeat it")
    parser.add_argument("--policy", action="append", choices=policies(), help="one of them; without it, all")
    parser.add_argument("--seeds", type=int, default=3, help="workloads, whose medians are shown")
    asked = parser.parse_args(arguments)
    for fleet, spec in FLEETS.items():
        for load in asked.load or (0.4, 0.6):
            drawn = [
                capacity.at_utilisation(spec, synthetic.make(asked.workload, asked.requests, RATE, seed), load)
                for seed in range(1, asked.seeds + 1)
            ]
            print(f"\n{asked.workload}, {fleet} ({spec}), load {load:.0%}: {drawn[0].rate:.0f}/s")
            print(
                f"{'':20}{'small TTFT p50 / p99 s':>24}{'TPOT p99 ms':>14}{'large TTFT p50 / p99 s':>24}{'not ok':>8}"
            )
            for name in asked.policy or policies():
                for lanes in ((), (asked.lane,)):
                    of = _median([_figures(spec, one, name, lanes, asked.lane.above_tokens) for one in drawn])
                    small, large = (
                        f"{of.small_p50:.3f} / {of.small_p99:.3f}",
                        f"{of.large_p50:.2f} / {of.large_p99:.2f}",
                    )
                    title = "  with lanes" if lanes else name
                    print(
                        f"{title:20}{small:>24}{of.small_tpot_p99 * 1e3:>14.0f}{large:>24}{of.not_answered:>8.0f}",
                        flush=True,
                    )
    return 0


def _figures(spec: FleetSpec, workload: Workload, policy: str, lanes: tuple[Lane, ...], above: int) -> Figures:
    outcomes = Simulation(spec, workload, policy, 1, LATE, lanes).run().outcomes
    counted = outcomes[round(WARMUP * len(outcomes)) :]
    small = [one for one in counted if one.prompt_tokens <= above]
    large = _ttft([one for one in counted if one.prompt_tokens > above])
    tpot = Percentiles.of([one.tpot for one in small if one.tpot is not None])
    small_ttft = _ttft(small)
    return Figures(
        *(small_ttft.p50 or 0.0, small_ttft.p99 or 0.0, tpot.p99 or 0.0, large.p50 or 0.0, large.p99 or 0.0),
        sum(one.ttft is None for one in counted),
    )


def _ttft(outcomes: Sequence[Outcome]) -> Percentiles:
    return Percentiles.of([one.ttft for one in outcomes if one.ttft is not None])


def _median(runs: Sequence[Figures]) -> Figures:
    return Figures(*(statistics.median(values) for values in zip(*runs, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
