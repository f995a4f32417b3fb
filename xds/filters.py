"""The HTTP filters that a request passes: the decision, the reading of token usage, the router."""

import math

import betterproto2
from envoy_data_plane.envoy.config.common.mutation_rules import v3 as mutation_rules
from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.extensions.filters.http.buffer import v3 as buffer
from envoy_data_plane.envoy.extensions.filters.http.ext_proc import v3 as ext_proc
from envoy_data_plane.envoy.extensions.filters.http.router import v3 as router
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager import v3 as hcm
from envoy_data_plane.envoy.type import v3 as envoy_type
from envoy_data_plane.envoy.type.matcher import v3 as matcher
from envoy_data_plane.google.protobuf import Any

from protos import ai_pb2
from tidegate.config import Config
from tidegate.config_routes import renames
from xds import fail_open, fuse, identity, queues
from xds.access_log import attempts_log
from xds.answer_filters import answer_filter
from xds.exchanges import CHANGES_HEADERS, OBJECTIVE_HEADER, PRIORITY_HEADER, also_read, attributes, processing_mode
from xds.messages import grpc_service, seconds
from xds.names import (
    BUFFER_FILTER,
    DECISION_FILTER,
    DECISION_NAMESPACE,
    DESTINATION_NAMESPACE,
    EXT_PROC_CLUSTER,
    USAGE_FILTER,
    USAGE_NAMESPACE,
)
from xds.own_filters import own_filters
from xds.routes import other_hosts

READ_BY_A_DECISION = (
    *(":method", ":path", "content-type", "content-encoding", "content-length", "x-request-id"),
    *("x-session-id", "anthropic-version", CHANGES_HEADERS, PRIORITY_HEADER, OBJECTIVE_HEADER),
)
"""The headers that ext_proc is always sent. What no decision reads does not leave Envoy; credentials do where there
are tenants, who show them to a decision."""

SMUGGLERS = "^(:.*|content-length|transfer-encoding|host)$"
"""Headers that ext_proc may not set: a wrong length makes the rest of a body a second request, and another path reaches
an API that nobody decided on (measured with 1.40: Envoy lets ``:path`` be set by default)."""

SMUGGLERS_BUT_LENGTH = "^(:.*|transfer-encoding|host)$"
"""The same where a pool has usage asked for in the body, or a route the model renamed there: the new length comes with
the new body, and nowhere else."""

RETRY_PAUSE = 0.5
"""Longest pause in seconds between two tries to reach a control plane that is not there."""

MAX_SSE_EVENTS = 1_000_000
MAX_JSON_ANSWER_BYTES = 10_485_760
"""How far Envoy reads an answer for its usage, one event a token; its own 65 536 events are met by reasoning models."""


def http_filters(config: Config) -> list[hcm.HttpFilter]:
    """Return the chain in order. Usage is read after the decision, that is: nearer to the engine.

    The buffer keeps a request's headers from the router until its body has come, and with it the decision: where
    ext_proc is not sent the headers it does not hold them either, and the router would have chosen before it was told.
    It also sets the length of a body that ext_proc has changed.
    """
    open_ = fail_open.wanted(config)
    rewriting = any(pool.injects_usage for pool in config.pools) or renames(config.routes)
    smugglers = SMUGGLERS_BUT_LENGTH if rewriting else SMUGGLERS
    reading = any(pool.usage == "stream" for pool in config.pools)
    jwt = identity.wanted(config)
    return [
        *fuse.of(config.listener),
        *([] if jwt is None else [identity.jwt_filter(jwt)]),
        *own_filters(config),
        _filter(DECISION_FILTER, _ext_proc(config, smugglers, fail_open=open_)),
        _filter(BUFFER_FILTER, buffer.Buffer(max_request_bytes=config.limits.max_body_bytes)),
        # Behind the buffer, so that it reads nothing where there is a decision.
        *([hcm.HttpFilter(name=fail_open.READER, typed_config=fail_open.reader(on=False))] if open_ else []),
        hcm.HttpFilter(name=USAGE_FILTER, typed_config=_usage()),
        *([answer_filter()] if reading else []),
        _filter("envoy.filters.http.router", router.Router(suppress_envoy_headers=True, upstream_log=[attempts_log()])),
    ]


def _filter(name: str, config: betterproto2.Message) -> hcm.HttpFilter:
    return hcm.HttpFilter(name=name, typed_config=Any.pack(config))


def _ext_proc(config: Config, smugglers: str, *, fail_open: bool) -> ext_proc.ExternalProcessor:
    """Return the filter that asks for the decision: the headers, then the whole body, nothing of the answer.

    Where a pool fails open, requests go on without a decision, to where those go that have none: nowhere, but for that
    pool's.
    """
    untyped = [DESTINATION_NAMESPACE, DECISION_NAMESPACE]
    return ext_proc.ExternalProcessor(
        grpc_service=_decision_service(config.limits.absence_seconds),
        failure_mode_allow=fail_open,
        status_on_error=envoy_type.HttpStatus(code=envoy_type.StatusCode.ServiceUnavailable),
        message_timeout=seconds(config.limits.decision_timeout_seconds),
        # A request that waits for its turn has us say so, and for how long: a decision that hangs is still noticed.
        max_message_timeout=seconds(queues.most_patience(config)) if queues.wanted(config) else None,
        processing_mode=processing_mode(headers=True),
        request_attributes=attributes(config),
        forward_rules=ext_proc.HeaderForwardingRules(
            allowed_headers=matcher.ListStringMatcher(
                patterns=[matcher.StringMatcher(exact=name) for name in (*READ_BY_A_DECISION, *also_read(config))]
            )
        ),
        metadata_options=ext_proc.MetadataOptions(
            receiving_namespaces=ext_proc.MetadataOptionsMetadataNamespaces(untyped=untyped)
        ),
        mutation_rules=mutation_rules.HeaderMutationRules(
            disallow_expression=matcher.RegexMatcher(regex=smugglers),
        ),
    )


def _decision_service(patience: float) -> core.GrpcService:
    """Return the service with its retries: one that dies costs no request that it had not begun to answer.

    Another process that decides is asked within milliseconds. Where there is none, a request waits about ``patience``
    seconds for one that is being restarted, which beats an error, and is then refused.

    The policy works at this level only; inside ``envoy_grpc`` Envoy 1.40 ignores it (measured).
    """
    service = grpc_service(EXT_PROC_CLUSTER)
    same = other_hosts()
    service.retry_policy = core.RetryPolicy(
        retry_on="connect-failure,refused-stream,unavailable,reset",
        # Pauses are drawn between 0 and a bound that doubles: seven of them take 0.3 s, each further one 0.25 s.
        num_retries=2 if patience < 0.1 else 7 + math.ceil(patience / (RETRY_PAUSE / 2)),
        retry_host_predicate=[core.RetryPolicyRetryHostPredicate(name=same.name, typed_config=same.typed_config)],
        host_selection_retry_max_attempts=3,
        retry_back_off=core.BackoffStrategy(base_interval=seconds(0.005), max_interval=seconds(RETRY_PAUSE)),
    )
    return service


def _usage() -> Any:
    """Return the filter that reads token usage out of answers, request handling left off.

    It is packed from our own slice because envoy-data-plane 2.2 lacks ``response_handling``.
    """
    limits = ai_pb2.TokenUsageExtractionLimits()
    limits.max_parsed_sse_events.value = MAX_SSE_EVENTS
    limits.max_json_body_size.value = MAX_JSON_ANSWER_BYTES
    usage = ai_pb2.TokenUsageExtraction(
        include_unconfigured_routes=True,
        default_llm_protocol=ai_pb2.OPENAI_CHAT_COMPLETIONS,
        metadata_namespace=USAGE_NAMESPACE,
        limits=limits,
    )
    config = ai_pb2.AiProtocolManager(response_handling=ai_pb2.ResponseHandling(token_usage=usage))
    return Any(
        type_url="type.googleapis.com/envoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManager",
        value=config.SerializeToString(deterministic=True),
    )
