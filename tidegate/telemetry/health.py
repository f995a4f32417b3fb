"""How endpoints are, as metrics and as JSON."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidegate.fleet.health import OUT, HealthStatus
from tidegate.fleet.outlook import Outlook
from tidegate.fleet.pool_health import Alarm
from tidegate.fleet.view import PoolView
from tidegate.telemetry.labels import Configured, Folded
from tidegate.telemetry.status import JsonObject

MAX_REASONS = 100
"""Distinct reasons with series of their own."""


class HealthFigures(Collector):
    """Each endpoint's health and the pools' alarms, read when Prometheus asks; and the changes, counted."""

    def __init__(
        self,
        registry: CollectorRegistry,
        views: Callable[[], Sequence[PoolView]],
        alarms: Callable[[], Mapping[str, Alarm]],
    ) -> None:
        """Show in ``registry`` what ``views`` and ``alarms``, by pool, return."""
        self._views = views
        self._alarms = alarms
        self._pool, self._reason = Configured(), Folded(MAX_REASONS)
        self._seen: set[tuple[str, str, str]] = set()
        self._transitions = Counter(
            "tidegate_endpoint_health_transitions_total",
            "Changes of endpoints' health, by what they became and the first reason for it.",
            ["pool", "status", "reason"],
            registry=registry,
        )
        registry.register(self)

    def configure(self, pools: Sequence[str]) -> None:
        """Count for ``pools`` alone from now on."""
        gone = self._pool.replace(pools)
        for labels in [labels for labels in self._seen if labels[0] in gone]:
            self._transitions.remove(*labels)
            self._seen.discard(labels)

    def changed(self, pool: str, status: HealthStatus, reasons: Sequence[str]) -> None:
        """Count that an endpoint of ``pool`` became ``status``."""
        labels = self._pool(pool), status.value, self._reason(reasons[0]) if reasons else ""
        self._seen.add(labels)
        self._transitions.labels(*labels).inc()

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Return nothing: the names do not depend on what is shown."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the health of all endpoints, and the alarms of all pools."""
        health = GaugeMetricFamily(
            "tidegate_endpoint_health", "1 for the status that an endpoint has.", labels=("pool", "endpoint", "status")
        )
        share = GaugeMetricFamily(
            "tidegate_endpoint_share_ratio",
            "What an endpoint gets of what it would get if it were healthy, 0 to 1.",
            labels=("pool", "endpoint"),
        )
        for pool in self._views():
            for endpoint in pool.endpoints:
                health.add_metric((pool.name, endpoint.address, endpoint.health.value), 1.0)
                share.add_metric((pool.name, endpoint.address), 0.0 if endpoint.ejected else endpoint.share)
        panic = GaugeMetricFamily(
            "tidegate_pool_panic", "Whether so much of a pool looks bad that nobody is ejected.", labels=("pool",)
        )
        doubt = GaugeMetricFamily(
            "tidegate_pool_agents_doubted",
            "Whether so many are condemned by agents alone that these are not believed.",
            labels=("pool",),
        )
        for name, alarm in self._alarms().items():
            panic.add_metric((name,), float(alarm.panic))
            doubt.add_metric((name,), float(alarm.doubt))
        yield from (health, share, panic, doubt)


def described(address: str, outlook: Outlook) -> JsonObject:
    """Return why an endpoint is how it is, as JSON."""
    health, alarm = outlook.health, outlook.alarm
    return {
        "address": address,
        "pool": outlook.pool,
        "status": health.status.value,
        "reasons": list(health.reasons),
        "seconds": round(outlook.seconds, 3),
        "share": 0.0 if health.status in OUT else round(health.share, 3),
        "ejections": outlook.ejections,
        "learned": {
            "prefill_seconds": outlook.pace.prefill_seconds,
            "expected_prefill_seconds": outlook.expected.prefill_seconds,
            "prefill_samples": round(outlook.samples[0], 1),
            "step_seconds": outlook.pace.step_seconds,
            "expected_step_seconds": outlook.expected.step_seconds,
            "step_samples": round(outlook.samples[1], 1),
        },
        "sources": [
            {
                "source": word.source,
                "verdict": word.verdict.value,
                "reasons": list(word.reasons),
                "detail": word.detail,
                "age_seconds": round(word.age, 3),
                "counts_for_seconds": round(word.left, 3) if math.isfinite(word.left) else None,
            }
            for word in outlook.words
        ],
        "pool_alarm": {"panic": alarm.panic, "agents_doubted": alarm.doubt, "bad": alarm.bad, "of": alarm.of},
        "would_change": list(outlook.would_change),
    }
