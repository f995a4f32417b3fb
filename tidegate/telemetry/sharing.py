"""How it stands with the Redis through which limits are shared: for Prometheus."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidegate.telemetry.families import FastCounter, FastHistogram

BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


class SharingFigures:
    """Counts what is asked of Redis, and what is decided without it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Export to ``registry``."""
        self._registry = registry
        self._calls = FastCounter(
            "tidegate_redis_calls_total",
            "Calls to Redis, each of a batch of operations, by outcome: `ok` or why not.",
            ("outcome",),
            registry=registry,
        )
        self._seconds = FastHistogram(
            "tidegate_redis_call_seconds", "How long those took that were answered.", buckets=BUCKETS, registry=registry
        )
        self._alone = FastCounter(
            "tidegate_redis_decided_alone_total",
            "Requests that were held against this replica's share of the limits, because Redis could not be asked.",
            registry=registry,
        )
        self._losses = FastCounter(
            "tidegate_redis_losses_total", "How often Redis was found to have lost what it knew.", registry=registry
        )
        self._calls.labels("ok")

    def watch(self, state: Callable[[], tuple[bool, str, int, int]]) -> None:
        """Export how it stands: whether limits are shared, why not, the replicas, and by how many limits are divided.

        ``state`` is asked at each scrape.
        """
        self._registry.register(_State(state))

    def called(self, outcome: str, seconds: float) -> None:
        """Count a call."""
        self._calls.labels(outcome).inc()
        if outcome == "ok":
            self._seconds.observe(seconds)

    def forgot(self) -> None:
        """Count that Redis lost what it knew."""
        self._losses.inc()

    def decided_alone(self) -> None:
        """Count a request that was decided without it."""
        self._alone.inc()


class _State(Collector):
    def __init__(self, state: Callable[[], tuple[bool, str, int, int]]) -> None:
        self._state = state

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield how it stands."""
        is_shared, _, replicas, parts = self._state()
        yield GaugeMetricFamily(
            "tidegate_redis_shared", "Whether limits are shared through Redis now; else they are divided.", is_shared
        )
        yield GaugeMetricFamily("tidegate_redis_replicas", "Replicas that Redis last heard of.", replicas)
        yield GaugeMetricFamily(
            "tidegate_redis_parts", "By how many limits are divided while Redis cannot be asked.", parts
        )
