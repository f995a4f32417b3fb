"""What is asked of ``predicted_latency`` beside the other policies, and whether it holds."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

OURS = "predicted_latency"
ORACLE = "oracle"
SLACK = 0.05
"""How much worse than the best of the others it may be in any cell."""
HALF = 0.5
BOUND = 1.15


class Cell(NamedTuple):
    """One trace on one fleet at one share of its capacity."""

    trace: str
    fleet: str
    load: float

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.trace}, {self.fleet} fleet, {self.load:.0%}"


class Figures(NamedTuple):
    """One policy in one cell: seconds, shares of 1, and the number of requests that were not answered."""

    ttft_p50: float
    ttft_p99: float
    tpot_p99: float
    end_to_end: float
    goodput: float
    not_answered: float
    hits: float


def verdicts(cells: Mapping[Cell, Mapping[str, Figures]]) -> Iterator[str]:
    """Say line by line what holds and what does not; cells that lack what a line compares say nothing."""
    for cell, figures in cells.items():
        others = {name: one for name, one in figures.items() if name not in {OURS, ORACLE}}
        if OURS not in figures or not others:
            continue
        ours = figures[OURS]
        if cell.fleet == "mixed" and cell.load == 0.8:
            yield _least(cell, "TTFT p99", ours.ttft_p99, {k: v.ttft_p99 for k, v in others.items()}, HALF)
        yield _least(cell, "TTFT p50", ours.ttft_p50, {k: v.ttft_p50 for k, v in others.items()}, 1 + SLACK)
        yield _least(cell, "TTFT p99", ours.ttft_p99, {k: v.ttft_p99 for k, v in others.items()}, 1 + SLACK)
        name, best = max(((k, v.goodput) for k, v in others.items()), key=lambda item: item[1])
        holds = ours.goodput >= best * (1 - SLACK)
        yield _line(holds, cell, f"goodput {ours.goodput:.1%}, best other {best:.1%} ({name})")
        if ORACLE in figures:
            ratio = ours.end_to_end / figures[ORACLE].end_to_end
            yield _line(ratio <= BOUND, cell, f"mean end-to-end time {ratio:.2f} times the oracle's, at most {BOUND}")


def _least(cell: Cell, what: str, ours: float, others: Mapping[str, float], factor: float) -> str:
    name, best = min(others.items(), key=lambda item: item[1])
    ratio = ours / best if best else 1.0
    return _line(
        ours <= best * factor,
        cell,
        f"{what} {ours:.3f} s, best other {best:.3f} s ({name}): {ratio:.2f}, at most {factor:g}",
    )


def _line(holds: bool, cell: Cell, text: str) -> str:
    return f"{'holds ' if holds else 'FAILS '} {cell}: {text}"
