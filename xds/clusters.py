"""The pools as Envoy clusters, and the cluster for requests that nobody decided on."""

from envoy_data_plane.envoy.config.cluster import v3 as cluster
from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.extensions.load_balancing_policies.least_request import v3 as least_request
from envoy_data_plane.envoy.extensions.load_balancing_policies.override_host import v3 as override_host
from envoy_data_plane.envoy.extensions.upstreams.http import v3 as upstream
from envoy_data_plane.envoy.type import v3 as envoy_type
from envoy_data_plane.envoy.type.metadata import v3 as metadata
from envoy_data_plane.google.protobuf import Any

from tidegate.config import Pool
from xds.endings import upstream_filters
from xds.messages import ads, extension, seconds
from xds.names import DESTINATION_KEY, DESTINATION_NAMESPACE, SERVED_KEY, UNDECIDED_CLUSTER
from xds.tls import to_engines

HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

IDLE_SECONDS = 4.0
"""vLLM, SGLang, TensorRT-LLM and llama.cpp close a connection that was idle for 5 seconds; Envoy must be first, or a
request meets the close and is lost."""

REQUESTS_PER_CONNECTION = {"llamacpp": 90}
"""llama.cpp ends a connection with its hundredth answer."""

NO_LIMIT = 100_000
"""Circuit breakers stay open: how much an endpoint may take is decided before Envoy is asked to send it."""

RETRY_BUDGET = cluster.CircuitBreakersThresholdsRetryBudget(
    budget_percent=envoy_type.Percent(value=20), min_retry_concurrency=10
)
"""Retries under way, as a share of the requests under way in a pool. When all its engines fail, retries must not be
what keeps them down."""


def pool_cluster(pool: Pool, still_seconds: float) -> cluster.Cluster:
    """Return the cluster of ``pool``: it goes where the decision says, and balances by itself only where it cannot.

    A stream of it that brings nothing but comments for ``still_seconds`` is ended.
    """
    return cluster.Cluster(
        name=pool.name,
        type=cluster.ClusterDiscoveryType.EDS,
        eds_cluster_config=cluster.ClusterEdsClusterConfig(eds_config=ads()),
        connect_timeout=seconds(1),
        # An endpoint is ejected by leaving the assignment; it must then be gone whatever else says it is healthy.
        ignore_health_on_host_removal=True,
        common_lb_config=cluster.ClusterCommonLbConfig(healthy_panic_threshold=envoy_type.Percent(value=0)),
        load_balancing_policy=_follow_the_decision(),
        outlier_detection=_connections_only(),
        circuit_breakers=cluster.CircuitBreakers(
            thresholds=[
                cluster.CircuitBreakersThresholds(
                    max_connections=NO_LIMIT,
                    max_pending_requests=NO_LIMIT,
                    max_requests=NO_LIMIT,
                    retry_budget=RETRY_BUDGET,
                )
            ]
        ),
        # A host that vanished without a word is noticed after about half a minute, not when an idle timeout runs out.
        upstream_connection_options=cluster.UpstreamConnectionOptions(
            tcp_keepalive=core.TcpKeepalive(keepalive_probes=3, keepalive_time=15, keepalive_interval=5)
        ),
        transport_socket=None if pool.tls is None else to_engines(pool.name, pool.tls),
        typed_extension_protocol_options={
            HTTP_OPTIONS: Any.pack(_http(REQUESTS_PER_CONNECTION.get(pool.engine), still_seconds))
        },
    )


def undecided_cluster() -> cluster.Cluster:
    """Return a cluster without endpoints.

    It is the target of the catch-all route. A ``direct_response`` would do but for one thing: Envoy buffers a body for
    ext_proc by the limit of the route that matched *before* the decision, and a direct response has none (measured
    with 1.40: 413 above 1 MiB whatever ``request_body_buffer_limit`` says).
    """
    return cluster.Cluster(name=UNDECIDED_CLUSTER, type=cluster.ClusterDiscoveryType.STATIC, connect_timeout=seconds(1))


def _follow_the_decision() -> cluster.LoadBalancingPolicy:
    """Return ``override_host`` over least request.

    The source is metadata alone, which only ext_proc can set: a header could be a client's. Hosts that the assignment
    does not hold are skipped.
    """
    return _policy(
        "envoy.load_balancing_policies.override_host",
        override_host.OverrideHost(
            override_host_sources=[override_host.OverrideHostOverrideHostSource(metadata=_key(DESTINATION_KEY))],
            selected_host_key=_key(SERVED_KEY),
            fallback_policy=_policy(
                "envoy.load_balancing_policies.least_request", least_request.LeastRequest(choice_count=2)
            ),
        ),
    )


def _policy(name: str, config: override_host.OverrideHost | least_request.LeastRequest) -> cluster.LoadBalancingPolicy:
    return cluster.LoadBalancingPolicy(
        policies=[cluster.LoadBalancingPolicyPolicy(typed_extension_config=extension(name, config))]
    )


def _key(name: str) -> metadata.MetadataKey:
    return metadata.MetadataKey(key=DESTINATION_NAMESPACE, path=[metadata.MetadataKeyPathSegment(key=name)])


def _connections_only() -> cluster.OutlierDetection:
    """Return an outlier detection that ejects for failed connections, not for answers.

    Engines say 503 when they are busy: that is load, not illness. What is ejected here is left out by the fallback
    policy alone, since ``override_host`` does not look at health.
    """
    return cluster.OutlierDetection(
        split_external_local_origin_errors=True,
        consecutive_local_origin_failure=3,
        enforcing_consecutive_5xx=0,
        enforcing_success_rate=0,
        enforcing_local_origin_success_rate=0,
        interval=seconds(1),
        base_ejection_time=seconds(10),
        max_ejection_percent=50,
    )


def _http(requests_per_connection: int | None, still_seconds: float) -> upstream.HttpProtocolOptions:
    return upstream.HttpProtocolOptions(
        explicit_http_config=upstream.HttpProtocolOptionsExplicitHttpConfig(
            http_protocol_options=core.Http1ProtocolOptions()
        ),
        common_http_protocol_options=core.HttpProtocolOptions(
            idle_timeout=seconds(IDLE_SECONDS), max_requests_per_connection=requests_per_connection
        ),
        http_filters=upstream_filters(still_seconds),
    )
