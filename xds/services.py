"""The discovery services that there are: one for everything, and one for each type."""

from typing import NamedTuple

from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET


class Service(NamedTuple):
    """One gRPC service.

    Attributes:
        name: its full name.
        state_of_the_world: its method for that variant.
        delta: its incremental method.
        type_url: the one type that it is about; empty for all of them.
    """

    name: str
    state_of_the_world: str
    delta: str
    type_url: str = ""


AGGREGATED = Service(
    *("envoy.service.discovery.v3.AggregatedDiscoveryService", "StreamAggregatedResources", "DeltaAggregatedResources")
)

SERVICES = (
    AGGREGATED,
    Service("envoy.service.cluster.v3.ClusterDiscoveryService", "StreamClusters", "DeltaClusters", CLUSTER),
    Service("envoy.service.endpoint.v3.EndpointDiscoveryService", "StreamEndpoints", "DeltaEndpoints", ENDPOINT),
    Service("envoy.service.listener.v3.ListenerDiscoveryService", "StreamListeners", "DeltaListeners", LISTENER),
    Service("envoy.service.route.v3.RouteDiscoveryService", "StreamRoutes", "DeltaRoutes", ROUTE),
    Service("envoy.service.secret.v3.SecretDiscoveryService", "StreamSecrets", "DeltaSecrets", SECRET),
)
"""Whoever has an Envoy of his own may take single types from here: a cluster's endpoints, above all. The order between
types is kept on the aggregated service alone."""
