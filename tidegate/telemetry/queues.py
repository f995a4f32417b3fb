"""The queues before the pools: for Prometheus, and as JSON."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidegate.scheduling.line import Standing
from tidegate.telemetry.families import FastCounter, FastHistogram
from tidegate.telemetry.labels import Configured
from tidegate.telemetry.status import JsonObject

WAIT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds in seconds: from the end of a running request to the longest that anything may wait."""


class QueueFigures:
    """Counts what waits, labelled ``pool`` and ``class`` (``interactive``, ``batch``)."""

    def __init__(self, registry: CollectorRegistry, pool: Configured) -> None:
        """Export to ``registry``; ``pool`` admits pools' names."""
        self._pool = pool
        labels = ("pool", "class")
        self._waiting = Gauge("tidegate_queue_requests", "Requests that wait for room.", labels, registry=registry)
        self._came = FastCounter(
            "tidegate_queue_entered_total", "Requests that found no room and waited.", labels, registry=registry
        )
        self._left = FastCounter(
            "tidegate_queue_left_total",
            "Requests that wait no longer, or did not get to, by what became of them: `admitted`, `cancelled` by the "
            "client, or why they were turned away.",
            (*labels, "outcome"),
            registry=registry,
        )
        self._waited = FastHistogram(
            "tidegate_queue_wait_seconds",
            "Of waiting for room, of requests that got it.",
            labels,
            buckets=WAIT_BUCKETS,
            registry=registry,
        )
        self._error = FastHistogram(
            "tidegate_queue_estimate_error_seconds",
            "By how much waits were other than foretold, by whether too much (`over`) or too little (`under`) was.",
            ("pool", "side"),
            buckets=WAIT_BUCKETS,
            registry=registry,
        )

    def queue_families(self) -> tuple[Counter | Gauge | Histogram, ...]:
        """Return the families that have series of a pool."""
        return self._waiting, self._came, self._left, self._waited, self._error

    def queued(self, pool: str, kind: str) -> None:
        """Count a request that waits, of the class ``kind``."""
        self._came.labels(self._pool(pool), kind).inc()
        self._waiting.labels(self._pool(pool), kind).inc()

    def unqueued(self, pool: str, kind: str, outcome: str, seconds: float) -> None:
        """Count one that waited for so many seconds; call it once for each ``queued``."""
        self._waiting.labels(self._pool(pool), kind).dec()
        self._left.labels(self._pool(pool), kind, outcome).inc()
        if outcome == "admitted":
            self._waited.labels(self._pool(pool), kind).observe(seconds)

    def turned_away(self, pool: str, kind: str, reason: str) -> None:
        """Count one that did not get to wait."""
        self._left.labels(self._pool(pool), kind, reason).inc()

    def wait_foretold(self, pool: str, seconds: float) -> None:
        """Record by how many seconds a wait was shorter than foretold."""
        self._error.labels(self._pool(pool), "over" if seconds > 0 else "under").observe(abs(seconds))


class QueueCollector(Collector):
    """What waits now, in tokens and bytes, and for how long."""

    def __init__(self, standings: Callable[[], Sequence[Standing]]) -> None:
        """Ask ``standings`` at each scrape."""
        self._standings = standings

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges."""
        labels = ("pool", "class")
        tokens = GaugeMetricFamily("tidegate_queue_tokens", "Tokens of what waits, with its answers.", labels=labels)
        size = GaugeMetricFamily("tidegate_queue_bytes", "Bytes of the bodies that wait.", labels=labels)
        oldest = GaugeMetricFamily("tidegate_queue_oldest_seconds", "How long the oldest has waited.", labels=labels)
        kept = GaugeMetricFamily(
            "tidegate_queue_kept_places", "Places kept free for more important requests to come.", labels=("pool",)
        )
        for one in self._standings():
            if not one.batch:
                kept.add_metric((one.pool,), one.kept)
            values = (one.pool, "batch" if one.batch else "interactive")
            tokens.add_metric(values, one.tokens)
            size.add_metric(values, one.bytes)
            oldest.add_metric(values, one.oldest_seconds)
        yield from (tokens, size, oldest, kept)


def describe(standings: Sequence[Standing], rate: Callable[[str], float | None]) -> JsonObject:
    """Return the page of the queues; ``rate`` says how many tokens a second leave that of a pool."""
    classes: dict[str, list[JsonObject]] = {}
    kept = {one.pool: one.kept for one in standings}
    for one in standings:
        classes.setdefault(one.pool, []).append(
            {
                "class": "batch" if one.batch else "interactive",
                "requests": one.requests,
                "tokens": one.tokens,
                "bytes": one.bytes,
                "oldest_seconds": round(one.oldest_seconds, 3),
                "waiting": [waits._asdict() for waits in one.askers],
            }
        )
    return {
        "queues": [
            {"pool": pool, "tokens_per_second": rate(pool), "kept_places": kept[pool], "classes": found}
            for pool, found in classes.items()
        ]
    }
