"""The sources of endpoints, as gauges: read when Prometheus asks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tidegate.telemetry.status import JsonObject

STAGES = ("waiting", "good", "failing", "held")


class SourceReport(NamedTuple):
    """One source.

    Attributes:
        pool: whose endpoints it finds.
        kind: what it is.
        endpoints: how many are held to be true.
        refused: how many it says and are left out.
        errors: passes that failed.
        age: seconds since it was last heard well; ``None`` when it never was.
        stage: one of ``STAGES``.
        reason: why its last pass failed; empty when it did not.
        left_out: the first of those that are left out, each with the reason.
    """

    pool: str
    kind: str
    endpoints: int
    refused: int
    errors: int
    age: float | None
    stage: str
    reason: str = ""
    left_out: Sequence[tuple[str, str]] = ()


def describe(reports: Iterable[SourceReport]) -> list[JsonObject]:
    """Return the sources as the status page has them."""
    return [
        {
            "pool": one.pool,
            "source": one.kind,
            "stage": one.stage,
            "reason": one.reason,
            "endpoints": one.endpoints,
            "refused": one.refused,
            "left_out": [{"address": address, "reason": reason} for address, reason in one.left_out],
        }
        for one in reports
    ]


class DiscoveryCollector(Collector):
    """Gauges of every source, labelled ``pool`` and ``source``."""

    def __init__(self, reports: Callable[[], Iterable[SourceReport]]) -> None:
        """Read the sources from ``reports``."""
        self._reports = reports

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the families."""
        labels = ("pool", "source")
        endpoints = GaugeMetricFamily(
            "tidegate_discovery_endpoints", "Endpoints that a source has found and that count.", labels=labels
        )
        refused = GaugeMetricFamily(
            "tidegate_discovery_refused_endpoints", "Endpoints that a source says and that are left out.", labels=labels
        )
        age = GaugeMetricFamily(
            "tidegate_discovery_age_seconds", "Time since a source was last heard well.", labels=labels
        )
        stage = GaugeMetricFamily(
            "tidegate_discovery_stage", "1 for the state that a source is in, else 0.", labels=(*labels, "stage")
        )
        errors = CounterMetricFamily(
            "tidegate_discovery_errors", "Passes of a source that came to nothing.", labels=labels
        )
        for report in self._reports():
            own = (report.pool, report.kind)
            endpoints.add_metric(own, report.endpoints)
            refused.add_metric(own, report.refused)
            errors.add_metric(own, report.errors)
            if report.age is not None:
                age.add_metric(own, report.age)
            for name in STAGES:
                stage.add_metric((*own, name), float(name == report.stage))
        yield from (endpoints, refused, age, stage, errors)
