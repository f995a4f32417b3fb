"""Reports side by side, as a table."""

import statistics
from collections.abc import Sequence

from rich import box
from rich.table import Table

from tidegate.simulator.virtual.classes import ClassReport
from tidegate.simulator.virtual.percentiles import Percentiles
from tidegate.simulator.virtual.report import Report

_COLUMNS = (
    *("TTFT p50", "p90", "p99", "TPOT p50", "p90", "p99", "all p50", "p90", "p99"),
    *("good", "good/s", "not ok", "KV", "imbal.", "hits"),
)
_CLASS_COLUMNS = ("requests", "answered", "good", "TTFT p50", "p90", "p99", "wait p50", "p90", "p99", "turned away")
_WAIT_COLUMNS = ("waited", "went", "wait p50", "p90", "error p50", "p90", "relative p50", "p90", "fairness")


def table(reports: Sequence[Report]) -> Table:
    """Return the means over the seeds of each policy, in the order of the reports.

    Times are seconds, but TPOT, which is milliseconds; what is best in a column is bold.
    """
    by_policy: dict[str, list[Report]] = {}
    for report in reports:
        by_policy.setdefault(report.policy, []).append(report)
    shown = _empty("policy", *_COLUMNS)
    for policy, runs in by_policy.items():
        shown.add_row(policy, *_cells(runs))
    return shown


def by_class(reports: Sequence[Report]) -> Table:
    """Return how each class of requests fared under each policy, in the first of its runs; times are seconds."""
    shown = _empty("policy", "priority", *_CLASS_COLUMNS)
    for report in _firsts(reports):
        for one in report.classes:
            shown.add_row(report.policy, *_class_cells(one))
    return shown


def of_waits(reports: Sequence[Report]) -> Table:
    """Return what waiting was like, likewise; ``error`` is how far off in seconds the estimates were."""
    shown = _empty("policy", *_WAIT_COLUMNS)
    for report in _firsts(reports):
        if (waits := report.waits) is not None:
            found = (waits.waited, waits.error, waits.relative_error)
            values = [value for part in found for value in (part.p50, part.p90)]
            cells = ["-" if value is None else f"{value:.2f}" for value in (*values, waits.fairness)]
            shown.add_row(report.policy, str(waits.requests), str(waits.went), *cells)
    return shown


def _empty(*titles: str) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for title in titles:
        shown.add_column(title, no_wrap=True, justify="left" if title == "policy" else "right")
    return shown


def _firsts(reports: Sequence[Report]) -> list[Report]:
    return list({report.policy: report for report in reversed(reports)}.values())[::-1]


def _class_cells(one: ClassReport) -> list[str]:
    times = [getattr(part, name) for part in (one.ttft, one.waited) for name in ("p50", "p90", "p99")]
    shown = ["-" if value is None else f"{value:.2f}" for value in times]
    turned_away = ", ".join(f"{count} {why}" for why, count in one.turned_away.items())
    return [str(one.priority), str(one.requests), str(one.answered), f"{one.goodput:.1%}", *shown, turned_away or "-"]


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
