"""How full the pools are: as gauges, for whoever scales them, and as JSON."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidegate.scheduling.saturation import Saturation
from tidegate.telemetry.status import JsonObject

Pools = Mapping[str, Saturation]
"""How full each pool is, by its name."""


class SaturationCollector(Collector):
    """Gauges of every pool, also of those without endpoints; a part that is unknown has no sample."""

    def __init__(self, pools: Callable[[], Pools]) -> None:
        """Read ``pools`` at each scrape."""
        self._pools = pools

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families."""
        pools = self._pools()
        figure = GaugeMetricFamily(
            "tidegate_pool_saturation",
            "How full the pool is, 1 being full: by its KV caches (`kv`), its batches (`batch`), what waits (`queue`), "
            "the time to the first token against its objective (`ttft`), and the largest of them (`total`).",
            labels=("pool", "part"),
        )
        for pool, found in pools.items():
            for part, value in found.parts():
                figure.add_metric((pool, part), value)
        yield figure
        yield _counted(
            "tidegate_pool_endpoints", "Endpoints that may be sent to.", ((n, s.endpoints) for n, s in pools.items())
        )
        yield _counted(
            "tidegate_pool_silent_endpoints",
            "Those of which no report is fresh: their part in the saturation is estimated.",
            ((name, found.silent) for name, found in pools.items()),
        )


def _counted(name: str, about: str, values: Iterable[tuple[str, int]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, about, labels=("pool",))
    for pool, value in values:
        family.add_metric((pool,), value)
    return family


def describe(pools: Pools) -> JsonObject:
    """Return the page: for each pool, its figure, its parts (``null`` where unknown) and its endpoints."""
    return {"pools": {name: {"total": found.total, **found._asdict()} for name, found in pools.items()}}
