"""The part that says how it stands with the Envoys that are connected."""

from collections.abc import Mapping

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.runtime.part import Part
from tidegate.telemetry.admin import Page
from tidegate.telemetry.metrics import Metrics
from tidegate.telemetry.status import JsonObject
from xds.server import DiscoveryServer
from xds.standing import Standing, StreamStanding
from xds.type_urls import ORDER, short


class XdsClients(Part, Collector):
    """Shows what each client has, and what it refused."""

    def __init__(self, discovery: DiscoveryServer, metrics: Metrics) -> None:
        """Show the clients of ``discovery``."""
        self._discovery = discovery
        metrics.registry.register(self)

    def pages(self) -> Mapping[str, Page]:
        """Return the page of the clients."""
        return {"/xds": Page("the Envoys that are connected, and what they refused, as JSON", lambda _: self.page())}

    def page(self) -> JsonObject:
        """Return what the page says."""
        return {"clients": [_client(one) for one in self._discovery.standings()]}

    def describe(self) -> list[Metric]:
        """Return nothing: the names do not depend on what is shown."""
        return []

    def collect(self) -> list[Metric]:
        """Return how many clients are behind, and how much they refused."""
        standings = self._discovery.standings()
        behind = GaugeMetricFamily(
            "tidegate_xds_clients_behind",
            "Envoys that have not applied all that they should; what one has refused and is parked does not count.",
        )
        behind.add_metric([], float(sum(not one.up_to_date for one in standings)))
        parked = GaugeMetricFamily(
            "tidegate_xds_parked",
            "Resources that Envoys refused, and that are not sent to them again.",
            labels=["type"],
        )
        for type_url in ORDER:
            found = (len(kind.parked) for one in standings for kind in one.types if kind.type_url == type_url)
            parked.add_metric([short(type_url)], float(sum(found)))
        connected = GaugeMetricFamily(
            "tidegate_xds_clients", "Envoys that are connected, by their group.", labels=["group"]
        )
        for group in sorted({one.group for one in standings}):
            connected.add_metric([group], float(sum(one.group == group for one in standings)))
        refused = CounterMetricFamily(
            "tidegate_xds_refused_streams", "Streams that were refused because no group takes their Envoy."
        )
        refused.add_metric([], float(self._discovery.refused))
        return [behind, parked, connected, refused]


def _client(one: StreamStanding) -> JsonObject:
    return {
        "node": one.node,
        "group": one.group,
        "variant": "delta" if one.incremental else "state of the world",
        "up_to_date": one.up_to_date,
        "types": [_kind(kind) for kind in one.types],
    }


def _kind(kind: Standing) -> JsonObject:
    refused = [
        {"name": name, "version": parked.version, "reason": parked.reason} for name, parked in kind.parked.items()
    ]
    return {"type": short(kind.type_url), "held": kind.held, "waits_for_answer": kind.waits, "refused": refused}
