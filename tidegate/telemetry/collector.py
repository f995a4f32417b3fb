"""The fleet, and what was learned, as gauges: read when Prometheus asks, so that what is gone has no series left.

What is unknown has no sample at all: a zero would look like an idle engine.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidegate.fleet.health import Reachability
from tidegate.fleet.view import EndpointView, PoolView
from tidegate.telemetry.labels import OTHER
from tidegate.tokens.correction import Ratio


class _Gauge(NamedTuple):
    name: str
    help: str
    value: Callable[[EndpointView], float | None]


_UP = {
    Reachability.REACHABLE: 1.0,
    Reachability.UNREACHABLE: 0.0,
    Reachability.UNREACHED: 0.0,
    Reachability.UNKNOWN: None,
}

_GAUGES = (
    _Gauge("tidegate_inflight_requests", "Requests sent to the endpoint and not over.", lambda e: e.inflight_requests),
    _Gauge(
        "tidegate_inflight_tokens", "Tokens those requests may come to hold, as estimated.", lambda e: e.inflight_tokens
    ),
    _Gauge("tidegate_endpoint_requests", "Requests at the endpoint, those of others included.", lambda e: e.requests),
    _Gauge("tidegate_endpoint_tokens", "Tokens at the endpoint, those of others included.", lambda e: e.tokens),
    _Gauge("tidegate_endpoint_running", "Requests in the engine's batch, as it last said.", lambda e: e.running),
    _Gauge("tidegate_endpoint_waiting", "Requests waiting in the engine, as it last said.", lambda e: e.waiting),
    _Gauge("tidegate_endpoint_kv_usage_ratio", "Share of the engine's KV cache in use, 0 to 1.", lambda e: e.kv_usage),
    _Gauge(
        "tidegate_endpoint_vram_room_tokens",
        "Tokens of context for which there is room in the VRAM, where that bounds requests.",
        lambda e: e.vram_room_tokens,
    ),
    _Gauge("tidegate_scrape_age_seconds", "Time since the engine's last report.", lambda e: e.report_age),
    _Gauge("tidegate_endpoint_up", "Whether the endpoint can be reached.", lambda e: _UP[e.reachability]),
    _Gauge("tidegate_endpoint_ejected", "Whether the endpoint is taken out of Envoy's table.", lambda e: e.ejected),
)


class FleetCollector(Collector):
    """Gauges of every endpoint, labelled ``pool`` and ``endpoint``."""

    def __init__(self, views: Callable[[], Sequence[PoolView]], reservations: Callable[[], int]) -> None:
        """Read the pools from ``views``, and from ``reservations`` how many requests hold a place anywhere."""
        self._views = views
        self._reservations = reservations

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield one family for each gauge."""
        views = self._views()
        for gauge in _GAUGES:
            family = GaugeMetricFamily(gauge.name, gauge.help, labels=("pool", "endpoint"))
            for pool in views:
                for endpoint in pool.endpoints:
                    value = gauge.value(endpoint)
                    if value is not None:
                        family.add_metric((pool.name, endpoint.address), float(value))
            yield family
        yield GaugeMetricFamily(
            "tidegate_inflight_reservations",
            "Requests that hold a place on an endpoint, removed endpoints included.",
            value=self._reservations(),
        )


class CorrectionCollector(Collector):
    """What prompts' token counts are multiplied by, labelled ``pool`` and ``model``."""

    def __init__(self, corrections: Iterable[Ratio], pool: Callable[[str], str], model: Callable[[str], str]) -> None:
        """Read ``corrections``; ``pool`` and ``model`` make the labels. What is filed under ``other`` is left out."""
        self._corrections = corrections
        self._pool = pool
        self._model = model

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the one family."""
        ratios = {(self._pool(pool), self._model(model)): value for pool, model, value in self._corrections}
        family = GaugeMetricFamily(
            "tidegate_token_correction_ratio",
            "Prompt tokens as engines report them over those that we count; what counts are multiplied by.",
            labels=("pool", "model"),
        )
        for labels, value in ratios.items():
            if OTHER not in labels:
                family.add_metric(labels, value)
        yield family
