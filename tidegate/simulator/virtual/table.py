"""Reports side by side, as a table."""

import statistics
from collections.abc import Sequence

from rich import box
from rich.table import Table

from tidegate.simulator.virtual.report import Percentiles, Report

_COLUMNS = (
    *("TTFT p50", "p90", "p99", "TPOT p50", "p90", "p99", "all p50", "p90", "p99"),
    *("good", "good/s", "not ok", "KV", "imbal.", "hits"),
)


def table(reports: Sequence[Report]) -> Table:
    """Return the means over the seeds of each policy, in the order of the reports.

    Times are seconds, but TPOT, which is milliseconds; what is best in a column is bold.
    """
    by_policy: dict[str, list[Report]] = {}
    for report in reports:
        by_policy.setdefault(report.policy, []).append(report)
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    shown.add_column("policy", no_wrap=True)
    for title in _COLUMNS:
        shown.add_column(title, no_wrap=True, justify="right")
    for policy, runs in by_policy.items():
        shown.add_row(policy, *_cells(runs))
    return shown


def _cells(runs: Sequence[Report]) -> list[str]:
    cells: list[str] = []
    for name, scale, shape in (("ttft", 1.0, ".3f"), ("tpot", 1e3, ".1f"), ("end_to_end", 1.0, ".2f")):
        for percentile in ("p50", "p90", "p99"):
            value = _mean([getattr(_percentiles(run, name), percentile) for run in runs])
            cells.append("-" if value is None else format(value * scale, shape))
    lost = _mean([run.requests - run.endings["answered"] for run in runs])
    return [
        *cells,
        f"{_mean([run.goodput for run in runs]):.1%}",
        f"{_mean([run.goodput_per_second for run in runs]):.1f}",
        f"{lost:.0f}",
        f"{_mean([run.kv_usage for run in runs]):.0%}",
        f"{_mean([run.imbalance for run in runs]):.2f}",
        f"{_mean([run.cache_hit_rate for run in runs]):.0%}",
    ]


def _percentiles(run: Report, name: str) -> Percentiles:
    found = getattr(run, name)
    assert isinstance(found, Percentiles)  # noqa: S101
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
