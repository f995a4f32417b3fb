"""The resource types that are served, in the order in which the aggregated service hands them out.

A listener names a route configuration, a route names clusters, a cluster names its assignment, and both listeners and
clusters name secrets: what is named goes first. https://www.envoyproxy.io/docs/envoy/v1.40.0/api-docs/xds_protocol#eventual-consistency-considerations
"""

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINT = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
ROUTE = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105  the name of a type

ORDER = (SECRET, CLUSTER, ENDPOINT, LISTENER, ROUTE)


def short(type_url: str) -> str:
    """Return the message's own name, such as ``Cluster``."""
    return type_url.rpartition(".")[2]


FULL_STATE = frozenset({CLUSTER, LISTENER})
"""Types whose empty first request means "everything" (a wildcard), and whose responses are complete sets."""
