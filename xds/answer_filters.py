"""The filter through which answers are read on their way to the client, in the pools that want it.

It stands among the filters of the listener, not of the pool's cluster. There, in front of the engine, Envoy 1.40.0 dies
(segmentation fault) of any answer that comes faster than it is read, once 1 MiB of it is waiting (measured).
"""

from envoy_data_plane.envoy.config.common.mutation_rules import v3 as mutation_rules
from envoy_data_plane.envoy.extensions.filters.http.ext_proc import v3 as ext_proc
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager import v3 as hcm
from envoy_data_plane.envoy.type.matcher import v3 as matcher
from envoy_data_plane.google.protobuf import Any

from xds.messages import grpc_service, seconds
from xds.names import ANSWER_FILTER, ANSWER_NAMESPACE, DECISION_NAMESPACE, EXT_PROC_CLUSTER

READ_OF_AN_ANSWER = (":status", "content-type", "content-encoding", "content-length")
"""The headers of an answer that are sent along with it."""

PATIENCE_SECONDS = 2.0
"""How long Envoy waits for one piece of an answer to come back. Then it passes the rest on by itself."""

_SKIP = ext_proc.ProcessingModeHeaderSendMode.SKIP
_NONE = ext_proc.ProcessingModeBodySendMode.NONE


def answer_filter() -> hcm.HttpFilter:
    """Return the filter, which does nothing but on the routes that ask for it (``read_answers``).

    A control plane that dies or hangs costs an answer its exact usage, and nothing else: Envoy passes the rest on
    (``failure_mode_allow``). Without that it would break off every answer in flight.
    """
    reader = ext_proc.ExternalProcessor(
        grpc_service=grpc_service(EXT_PROC_CLUSTER),
        failure_mode_allow=True,
        message_timeout=seconds(PATIENCE_SECONDS),
        processing_mode=_mode(_SKIP, _NONE),
        forward_rules=ext_proc.HeaderForwardingRules(
            allowed_headers=matcher.ListStringMatcher(
                patterns=[matcher.StringMatcher(exact=name) for name in READ_OF_AN_ANSWER]
            )
        ),
        metadata_options=ext_proc.MetadataOptions(
            forwarding_namespaces=ext_proc.MetadataOptionsMetadataNamespaces(untyped=[DECISION_NAMESPACE]),
            receiving_namespaces=ext_proc.MetadataOptionsMetadataNamespaces(untyped=[ANSWER_NAMESPACE]),
        ),
        # A length may be taken away, where an event is kept back.
        mutation_rules=mutation_rules.HeaderMutationRules(
            disallow_expression=matcher.RegexMatcher(regex="^(transfer-encoding|host)$"),
        ),
    )
    return hcm.HttpFilter(name=ANSWER_FILTER, typed_config=Any.pack(reader))


def read_answers() -> dict[str, Any]:
    """Return what a route says for its answers to be read."""
    mode = _mode(ext_proc.ProcessingModeHeaderSendMode.SEND, ext_proc.ProcessingModeBodySendMode.STREAMED)
    overrides = ext_proc.ExtProcOverrides(processing_mode=mode)
    return {ANSWER_FILTER: Any.pack(ext_proc.ExtProcPerRoute(overrides=overrides))}


def _mode(
    headers: ext_proc.ProcessingModeHeaderSendMode, body: ext_proc.ProcessingModeBodySendMode
) -> ext_proc.ProcessingMode:
    """Return a mode for answers; requests are none of this filter's business."""
    return ext_proc.ProcessingMode(
        request_header_mode=_SKIP,
        request_body_mode=_NONE,
        request_trailer_mode=_SKIP,
        response_header_mode=headers,
        response_body_mode=body,
        response_trailer_mode=_SKIP,
    )
