"""From what was counted to what is said: percentiles, medians over rounds, ratios, the table."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from bench.load import Result

NOT_MEASURED = "-"


@dataclass(frozen=True, slots=True)
class Figures:
    """One side in one round, or its medians.

    Times of CPU are microseconds per answered request; None where there is no such process, or no answer.
    ``control_us`` is the process that decides; ``proxy_us`` is Envoy and it together: what the request cost between the
    client and the engine.
    """

    requests_per_second: float
    p50_ms: float | None
    p99_ms: float | None
    envoy_us: float | None
    control_us: float | None
    proxy_us: float | None
    engine_us: float | None
    load_us: float | None
    not_answered: float


_TITLES = {
    "requests_per_second": "requests/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "envoy_us": "Envoy µs",
    "control_us": "control µs",
    "proxy_us": "both µs",
    "engine_us": "engine µs",
    "load_us": "load µs",
    "not_answered": "not 200",
}
_RATIOS = ("requests_per_second", "p50_ms", "p99_ms", "envoy_us", "control_us", "proxy_us")


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return the smallest of ``values`` that at least ``percent`` of them do not exceed (nearest rank).

    None, if there are no values.
    """
    if not values:
        return None
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(rank, 1) - 1]


def figures(result: Result, cpu: Mapping[str, float]) -> Figures:
    """Return the figures of one round.

    Args:
        result: what the load generator saw.
        cpu: seconds of CPU that each process used meanwhile: ``envoy``, ``control``, ``engine``, ``load``.
    """

    def per_request(*names: str) -> float | None:
        used = [cpu[name] for name in names if name in cpu]
        return sum(used) * 1e6 / result.answered if used and result.answered else None

    def milliseconds(percent: float) -> float | None:
        seconds = percentile(result.latencies, percent)
        return None if seconds is None else seconds * 1e3

    return Figures(
        requests_per_second=result.answered / result.seconds if result.seconds else 0.0,
        p50_ms=milliseconds(50),
        p99_ms=milliseconds(99),
        envoy_us=per_request("envoy"),
        control_us=per_request("control"),
        proxy_us=per_request("envoy", "control"),
        engine_us=per_request("engine"),
        load_us=per_request("load"),
        not_answered=result.not_answered,
    )


def medians(rounds: Sequence[Figures]) -> Figures:
    """Return the median of each figure over the rounds that have it; of ``not_answered``, the sum."""

    def median(name: str) -> float | None:
        known = [value for value in (getattr(one, name) for one in rounds) if value is not None]
        return statistics.median(known) if known else None

    values = {field.name: median(field.name) for field in fields(Figures)}
    values["not_answered"] = sum(one.not_answered for one in rounds)
    return Figures(**values)  # type: ignore[arg-type]  # the figures that may not be None never are


def ratios(base: Figures, other: Figures) -> dict[str, float | None]:
    """Return ``other`` over ``base`` for the figures that both sides have."""
    found: dict[str, float | None] = {}
    for name in _RATIOS:
        below, above = getattr(base, name), getattr(other, name)
        found[name] = above / below if above is not None and below else None
    return found


def table(rounds: Sequence[Mapping[str, Figures]], loads: Sequence[Mapping[str, float]]) -> str:
    """Return the whole comparison as text; each side's ratios are to every side before it.

    Args:
        rounds: the figures of each side by its name, one mapping a round.
        loads: the machine's load average at the end of each of them.
    """
    names = list(rounds[0])
    rows = [["round", "side", *_TITLES.values(), "load avg"]]
    for number, (round_, load) in enumerate(zip(rounds, loads, strict=True), 1):
        rows += [[str(number), name, *_cells(asdict(round_[name])), f"{load[name]:.2f}"] for name in names]
    middle = {name: medians([round_[name] for round_ in rounds]) for name in names}
    rows += [["median", name, *_cells(asdict(middle[name])), ""] for name in names]
    for base, other in itertools.combinations(names, 2):
        rows.append(["ratio", f"{other}/{base}", *_cells(ratios(middle[base], middle[other]), "{:.2f}"), ""])
    return aligned(rows)


def as_json(rounds: Sequence[Mapping[str, Figures]], loads: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the same comparison as plain data."""
    names = list(rounds[0])
    middle = {name: medians([round_[name] for round_ in rounds]) for name in names}
    return {
        "rounds": [
            {name: asdict(round_[name]) | {"load_average": load[name]} for name in names}
            for round_, load in zip(rounds, loads, strict=True)
        ],
        "medians": {name: asdict(middle[name]) for name in names},
        "ratios": {
            f"{other}/{base}": ratios(middle[base], middle[other]) for base, other in itertools.combinations(names, 2)
        },
    }


def _cells(values: Mapping[str, float | None], shape: str | None = None) -> list[str]:
    cells = []
    for name in _TITLES:
        value = values.get(name)
        cells.append(NOT_MEASURED if value is None else (shape or _shape(value)).format(value))
    return cells


def _shape(value: float) -> str:
    """Return a format with three significant digits or all before the point."""
    return "{:.0f}" if value >= 100 or value == 0 else "{:.1f}" if value >= 10 else "{:.2f}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text, the first two columns to the left."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
