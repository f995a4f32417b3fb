"""The filters of a pool whose answers are read for their usage: nearest to the engine, one exchange per attempt."""

from envoy_data_plane.envoy.config.common.mutation_rules import v3 as mutation_rules
from envoy_data_plane.envoy.extensions.filters.http.ext_proc import v3 as ext_proc
from envoy_data_plane.envoy.extensions.filters.http.upstream_codec import v3 as upstream_codec
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager import v3 as hcm
from envoy_data_plane.envoy.type.matcher import v3 as matcher
from envoy_data_plane.google.protobuf import Any

from xds.messages import grpc_service, seconds
from xds.names import ANSWER_NAMESPACE, DECISION_NAMESPACE, EXT_PROC_CLUSTER

READ_OF_AN_ANSWER = (":status", "content-type", "content-encoding", "content-length")
"""The headers of an answer that are sent along with it."""

PATIENCE_SECONDS = 2.0
"""How long Envoy waits for one piece of an answer to come back. Then it passes the rest on by itself."""


def answer_filters() -> list[hcm.HttpFilter]:
    """Return the chain of a pool with ``usage: stream``.

    A control plane that dies or hangs costs an answer its exact usage, and nothing else: Envoy passes the rest on
    (``failure_mode_allow``). Without that it would break off every answer in flight.
    """
    skip, none = ext_proc.ProcessingModeHeaderSendMode.SKIP, ext_proc.ProcessingModeBodySendMode.NONE
    reader = ext_proc.ExternalProcessor(
        grpc_service=grpc_service(EXT_PROC_CLUSTER),
        failure_mode_allow=True,
        message_timeout=seconds(PATIENCE_SECONDS),
        processing_mode=ext_proc.ProcessingMode(
            request_header_mode=skip,
            request_body_mode=none,
            request_trailer_mode=skip,
            response_header_mode=ext_proc.ProcessingModeHeaderSendMode.SEND,
            response_body_mode=ext_proc.ProcessingModeBodySendMode.STREAMED,
            response_trailer_mode=skip,
        ),
        forward_rules=ext_proc.HeaderForwardingRules(
            allowed_headers=matcher.ListStringMatcher(
                patterns=[matcher.StringMatcher(exact=name) for name in READ_OF_AN_ANSWER]
            )
        ),
        metadata_options=ext_proc.MetadataOptions(
            forwarding_namespaces=ext_proc.MetadataOptionsMetadataNamespaces(untyped=[DECISION_NAMESPACE]),
            receiving_namespaces=ext_proc.MetadataOptionsMetadataNamespaces(untyped=[ANSWER_NAMESPACE]),
        ),
        mutation_rules=mutation_rules.HeaderMutationRules(
            disallow_expression=matcher.RegexMatcher(regex="^(transfer-encoding|host)$"),
        ),
    )
    return [
        hcm.HttpFilter(name="envoy.filters.http.ext_proc", typed_config=Any.pack(reader)),
        hcm.HttpFilter(name="envoy.filters.http.upstream_codec", typed_config=Any.pack(upstream_codec.UpstreamCodec())),
    ]
