"""The listener for clients: an edge that trusts nobody, and waits as long as inference needs."""

from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.config.listener import v3 as listener
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager import v3 as hcm
from envoy_data_plane.google.protobuf import Any

from tidegate.config import Config
from xds import queues
from xds.access_log import access_log, access_log_options
from xds.edge_headers import strip_control_headers
from xds.filters import http_filters
from xds.local_replies import local_reply_config
from xds.messages import ads, seconds, socket_address
from xds.names import LISTENER, ROUTES
from xds.tls import from_clients

HEADERS_SECONDS = 10.0
REQUEST_SECONDS = 120.0
"""How long a client may take to send its headers, and its whole request; the body limit at 2 Mbit/s."""

STREAMS_PER_CONNECTION = 256
"""HTTP/2 streams of one client connection: more than any client library opens, less than the 1000 resets in a row at
which Envoy ends the connection."""

SLACK_SECONDS = 5.0


def client_listener(config: Config) -> listener.Listener:
    """Return the listener."""
    return listener.Listener(
        name=LISTENER,
        address=socket_address(config.listener.address, config.listener.port),
        filter_chains=[
            listener.FilterChain(
                filters=[
                    listener.Filter(
                        name="envoy.filters.network.http_connection_manager",
                        typed_config=Any.pack(_connection_manager(config)),
                    )
                ],
                transport_socket=None if config.listener.tls is None else from_clients(config.listener.tls),
            )
        ],
    )


def _connection_manager(config: Config) -> hcm.HttpConnectionManager:
    limits = config.limits
    return hcm.HttpConnectionManager(
        stat_prefix=LISTENER,
        server_name="tidegate",
        rds=hcm.Rds(route_config_name=ROUTES, config_source=ads()),
        http_filters=http_filters(config),
        local_reply_config=local_reply_config(config),
        access_log=[access_log()],
        access_log_options=access_log_options(),
        # It also runs while a decision is awaited, so it must not end that wait before its own deadline does.
        stream_idle_timeout=seconds(
            max(
                limits.idle_timeout_seconds,
                max(limits.decision_timeout_seconds, queues.most_patience(config)) + SLACK_SECONDS,
            )
        ),
        request_headers_timeout=seconds(HEADERS_SECONDS),
        request_timeout=seconds(REQUEST_SECONDS),
        # Clients know OpenAI's x-request-id; ours is the id under which the log and the engine know the request.
        always_set_request_id_in_response=True,
        use_remote_address=True,
        early_header_mutation_extensions=[strip_control_headers(config.authentication.identity_header)],
        normalize_path=True,
        merge_slashes=True,
        # Names of models have slashes. Where an engine might make a slash of one, the decision refuses it.
        path_with_escaped_slashes_action=hcm.HttpConnectionManagerPathWithEscapedSlashesAction.KEEP_UNCHANGED,
        common_http_protocol_options=core.HttpProtocolOptions(
            headers_with_underscores_action=core.HttpProtocolOptionsHeadersWithUnderscoresAction.REJECT_REQUEST
        ),
        http2_protocol_options=core.Http2ProtocolOptions(max_concurrent_streams=STREAMS_PER_CONNECTION),
    )
