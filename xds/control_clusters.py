"""The control plane as Envoy clusters: where decisions come from, and where the access log goes."""

from envoy_data_plane.envoy.config.cluster import v3 as cluster
from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.config.endpoint import v3 as endpoint
from envoy_data_plane.envoy.extensions.upstreams.http import v3 as upstream
from envoy_data_plane.envoy.type import v3 as envoy_type
from envoy_data_plane.google.protobuf import Any

from tidegate.config_control import Control
from xds.clusters import HTTP_OPTIONS
from xds.messages import seconds, socket_address
from xds.names import ACCESS_LOG_CLUSTER, EXT_PROC_CLUSTER, HOLD_CLUSTER
from xds.tls import transport_socket

NO_LIMIT = 1_000_000
"""Every request that waits for a decision holds a stream; Envoy's own limit of 1024 would fail the next one."""


MOST_HELD = 1024
"""Streams that were ended and whose clients stay. What exceeds that is told the same, and is not broken off as long."""


def ext_proc_cluster(control: Control) -> cluster.Cluster:
    """Return the cluster of the external-processing service.

    One that hangs is left out within seconds (HTTP/2 pings and health checks); when none is well, the requests go to it
    all the same, because an error from it says more than one about it.
    """
    built = _grpc_cluster(EXT_PROC_CLUSTER, control, *control.ports)
    built.circuit_breakers = cluster.CircuitBreakers(
        thresholds=[
            cluster.CircuitBreakersThresholds(
                max_connections=NO_LIMIT, max_pending_requests=NO_LIMIT, max_requests=NO_LIMIT, max_retries=NO_LIMIT
            )
        ]
    )
    built.common_lb_config = cluster.ClusterCommonLbConfig(healthy_panic_threshold=envoy_type.Percent(value=1))
    built.health_checks = [
        core.HealthCheck(
            timeout=seconds(1),
            interval=seconds(1),
            no_traffic_interval=seconds(1),
            unhealthy_threshold=1,
            healthy_threshold=1,
            grpc_health_check=core.HealthCheckGrpcHealthCheck(),
        )
    ]
    built.outlier_detection = cluster.OutlierDetection(
        consecutive_gateway_failure=2,
        enforcing_consecutive_gateway_failure=100,
        interval=seconds(0.5),
        base_ejection_time=seconds(2),
        max_ejection_percent=50,
    )
    return built


def access_log_cluster(control: Control) -> cluster.Cluster:
    """Return the cluster of the access-log intake."""
    return _grpc_cluster(ACCESS_LOG_CLUSTER, control, control.access_log_port)


def hold_cluster(control: Control) -> cluster.Cluster:
    """Return the cluster for questions that are not to be answered, of which there may be ``MOST_HELD`` at a time.

    They keep none of the streams by which Envoy hears of anything, which is why it is a cluster of its own.
    """
    built = _grpc_cluster(HOLD_CLUSTER, control, control.xds_port)
    built.circuit_breakers = cluster.CircuitBreakers(
        thresholds=[cluster.CircuitBreakersThresholds(max_requests=MOST_HELD)]
    )
    return built


def _grpc_cluster(name: str, control: Control, *ports: int) -> cluster.Cluster:
    places = [endpoint.Endpoint(address=socket_address(control.reached_at, port)) for port in ports]
    members = [endpoint.LbEndpoint(endpoint=place) for place in places]
    keepalive = core.KeepaliveSettings(interval=seconds(2), timeout=seconds(3))
    http2 = upstream.HttpProtocolOptions(
        explicit_http_config=upstream.HttpProtocolOptionsExplicitHttpConfig(
            http2_protocol_options=core.Http2ProtocolOptions(connection_keepalive=keepalive)
        )
    )
    return cluster.Cluster(
        name=name,
        type=cluster.ClusterDiscoveryType.STATIC,
        connect_timeout=seconds(1),
        lb_policy=cluster.ClusterLbPolicy.ROUND_ROBIN,
        load_assignment=endpoint.ClusterLoadAssignment(
            cluster_name=name, endpoints=[endpoint.LocalityLbEndpoints(lb_endpoints=members)]
        ),
        transport_socket=transport_socket(control),
        typed_extension_protocol_options={HTTP_OPTIONS: Any.pack(http2)},
    )
