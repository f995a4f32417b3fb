"""From a page to a report, by a dialect.

What cannot be known is ``None``, never 0 and never a part of the sum: an engine that renames a series, drops a rank or
says NaN must not look idle.
"""

import math
from collections.abc import Mapping
from typing import Any

from tidegate.engines.dialect import Dialect, Mean, Meaning, Names, Newest, Ratio, Series, Sum, SumOfProducts
from tidegate.engines.exposition import Page, Sample
from tidegate.fleet.load import EngineReport

ROUNDING = 1e-3
"""How far a share may lie outside [0, 1] and still be taken for 0 or 1: engines print rounded floats."""

_Labels = frozenset[tuple[str, str]]
_Numeric = Sum | Mean | SumOfProducts | Ratio | Newest
_UNKNOWN: Mapping[_Labels, float] = {frozenset(): math.nan}


def read(dialect: Dialect, page: Page, before: Page | None = None) -> EngineReport:
    """Return what ``page`` says in ``dialect``.

    Args:
        dialect: how the engine names things.
        page: what the engine said now.
        before: what it said the last time. A series that was there then and is missing now (a data-parallel rank, say)
            makes a figure unknown, not smaller, for this one report; after that the smaller set is the truth.
    """
    fields: dict[str, Any] = {
        meaning: _first_present(alternatives, page, before) for meaning, alternatives in dialect.meanings()
    }
    return EngineReport(**fields)


def _first_present(alternatives: tuple[Meaning, ...], page: Page, before: Page | None) -> float | frozenset[str] | None:
    for meaning in alternatives:
        if isinstance(meaning, Names):
            if (names := _names(meaning.series, page)) is not None:
                return names
            continue
        value = _evaluate(meaning, page, before)
        if value is not None:
            return value if math.isfinite(value) else None
    return None


def _evaluate(meaning: _Numeric, page: Page, before: Page | None) -> float | None:
    """Return the value of ``meaning``: ``None`` where the page lacks it, NaN where it is there and unknown."""
    match meaning:
        case Sum(series):
            values = _values(series, page, before)
            return None if values is None else sum(map(_count, values.values()))
        case Mean(series):
            values = _values(series, page, before)
            return None if values is None else sum(map(_share, values.values())) / len(values)
        case SumOfProducts(left, right):
            pairs = _pairs(left, right, page, before)
            return None if pairs is None else sum(one * other for one, other in pairs)
        case Ratio(part, whole):
            pairs = _pairs(part, whole, page, before)
            return None if pairs is None else _ratio(pairs)
        case Newest(series):
            newest = _newest(series, page)
            number = None if newest is None else _number(series, newest)
            return None if number is None else _count(number)


def _newest(series: Series, page: Page) -> Sample | None:
    dated = [sample for sample in _matching(series, page) if math.isfinite(sample.value)]
    return None if series.name in page.broken else max(dated, key=lambda sample: sample.value, default=None)


def _names(series: Series, page: Page) -> frozenset[str] | None:
    newest = _newest(series, page)
    if newest is None or series.label is None or series.label not in newest.labels:
        return None
    return frozenset(name for part in newest.labels[series.label].split(",") if (name := part.strip()))


def _count(value: float) -> float:
    return value if value >= 0 else math.nan


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0) if -ROUNDING <= value <= 1 + ROUNDING else math.nan


def _ratio(pairs: list[tuple[float, float]]) -> float:
    whole = sum(of for _, of in pairs)
    return _share(sum(part for part, _ in pairs) / whole) if whole > 0 else math.nan


def _pairs(left: Series, right: Series, page: Page, before: Page | None) -> list[tuple[float, float]] | None:
    """Return the values of both series, those with the same labels together; ``None`` where one of them is absent."""
    ones, others = _values(left, page, before), _values(right, page, before)
    if ones is None or others is None:
        return None
    if ones.keys() != others.keys():
        return [(math.nan, math.nan)]
    return [(_count(value), _count(others[labels])) for labels, value in ones.items()]


def _values(series: Series, page: Page, before: Page | None) -> Mapping[_Labels, float] | None:
    """Return the numbers of ``series`` by the labels that set them apart; ``None`` where there is no number at all."""
    if series.name in page.broken:
        return _UNKNOWN
    numbers = {_apart(series, sample): _number(series, sample) for sample in _matching(series, page)}
    known = {labels: number for labels, number in numbers.items() if number is not None}
    if not known:
        return None
    vanished = before is not None and any(
        _apart(series, sample) not in known
        for sample in _matching(series, before)
        if _number(series, sample) is not None
    )
    return _UNKNOWN if vanished or len(known) < len(numbers) else known


def _matching(series: Series, page: Page) -> list[Sample]:
    return [sample for sample in page.named(series.name) if series.where.items() <= sample.labels.items()]


def _apart(series: Series, sample: Sample) -> _Labels:
    return frozenset(pair for pair in sample.labels.items() if pair[0] not in series.where)


def _number(series: Series, sample: Sample) -> float | None:
    if series.label is None:
        return sample.value
    text = sample.labels.get(series.label, "None")
    try:
        # vLLM writes the string None for what it does not know (yet).
        return None if text == "None" else float(text)
    except ValueError:
        return math.nan
