"""One log entry for each request that ended, and one every ten seconds for each that runs, over gRPC to Tidegate."""

from envoy_data_plane.envoy.config.accesslog import v3 as accesslog
from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.data.accesslog import v3 as data
from envoy_data_plane.envoy.extensions.access_loggers.grpc import v3 as grpc_log
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager import v3 as hcm
from envoy_data_plane.envoy.type.tracing import v3 as tracing
from envoy_data_plane.google.protobuf import Any

from xds.endings import failed
from xds.messages import grpc_service, seconds
from xds.names import ACCESS_LOG, ACCESS_LOG_CLUSTER, ENDING_HEADER, HOST_TAG, TTFT_TAG, UPSTREAM_TTFT_TAG

TAGS = {
    TTFT_TAG: "%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG:us)%",
    UPSTREAM_TTFT_TAG: "%COMMON_DURATION(US_TX_END:US_RX_BODY_BEG:us)%",
    HOST_TAG: "%UPSTREAM_HOST%",
}
"""Microseconds to the first byte of the answer's *body*: engines send its headers long before the first token. The
first counts from the request's arrival, waiting included, the second from its delivery to the engine. And the endpoint
turned to, which Envoy does not tell otherwise where no connection came about."""

BUFFER_BYTES = 16_777_216
"""What Envoy holds of the log while it cannot be sent at once; what exceeds that is lost, and with it the ends of
requests. The default is 16 KB: of 2,000 answers that ended together, 1,600 ends were lost (measured). An entry takes
about 1 KB."""

GATHERED_SECONDS = 0.02
"""How long Envoy gathers entries before it sends them. What a request held in flight comes back when its end is read:
10 ms after it, where 0.1 s made it 90 ms (median; measured). What that costs cannot be told from noise."""

SIGN_OF_LIFE_SECONDS = 10.0
"""How often a request that runs is reported; ``limits.lease_seconds`` rests on it."""


def access_log() -> accesslog.AccessLog:
    """Return the log of requests."""
    types = [data.AccessLogType.DownstreamEnd, data.AccessLogType.DownstreamPeriodic]
    return _log(accesslog.AccessLogFilter(log_type_filter=accesslog.LogTypeFilter(types=types)))


def attempts_log() -> accesslog.AccessLog:
    """Return the log of the attempts that failed.

    In all else it is the same as the other, and so the same to Envoy, which sends the entries of both on one stream: an
    attempt that was followed by another comes before the end of its request.
    """
    return _log(failed())


def _log(which: accesslog.AccessLogFilter) -> accesslog.AccessLog:
    return accesslog.AccessLog(
        name="envoy.access_loggers.http_grpc",
        filter=which,
        typed_config=Any.pack(
            grpc_log.HttpGrpcAccessLogConfig(
                common_config=grpc_log.CommonGrpcAccessLogConfig(
                    log_name=ACCESS_LOG,
                    transport_api_version=core.ApiVersion.V3,
                    grpc_service=grpc_service(ACCESS_LOG_CLUSTER),
                    buffer_flush_interval=seconds(GATHERED_SECONDS),
                    buffer_size_bytes=BUFFER_BYTES,
                    custom_tags=[tracing.CustomTag(tag=tag, value=value) for tag, value in TAGS.items()],
                ),
                additional_response_headers_to_log=[ENDING_HEADER],
            )
        ),
    )


def access_log_options() -> hcm.HttpConnectionManagerHcmAccessLogOptions:
    """Return how often a running request is reported."""
    return hcm.HttpConnectionManagerHcmAccessLogOptions(access_log_flush_interval=seconds(SIGN_OF_LIFE_SECONDS))
