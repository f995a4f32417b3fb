"""Where a request goes: to the pool that was decided, or nowhere."""

import dataclasses

from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.config.route import v3 as route
from envoy_data_plane.envoy.extensions.filters.http.buffer import v3 as buffer
from envoy_data_plane.envoy.extensions.filters.http.ext_proc import v3 as ext_proc
from envoy_data_plane.envoy.extensions.retry.host.previous_hosts import v3 as previous_hosts
from envoy_data_plane.envoy.type import v3 as envoy_type
from envoy_data_plane.envoy.type.matcher import v3 as matcher
from envoy_data_plane.google.protobuf import Any

from protos import ai_pb2
from tidegate.config import Config, Pool
from tidegate.config_limits import Limits
from tidegate.config_routes import AS_THE_POOL, Bounds, ways_to
from xds import credentials, fail_open, queues
from xds.answer_filters import read_answers
from xds.endings import another_may_do_better
from xds.exchanges import in_one, in_one_alone
from xds.messages import seconds
from xds.names import (
    BUFFER_FILTER,
    DEADLINE_HEADER,
    DECISION_FILTER,
    DECISION_NAMESPACE,
    ENDING_HEADER,
    ROUTES,
    SERVED_KEY,
    TOO_LARGE,
    UNDECIDED_CLUSTER,
    USAGE_FILTER,
)

RETRY_ON = "connect-failure,refused-stream,reset,retriable-status-codes,retriable-headers"
"""Failures before the answer's headers; Envoy retries nothing after them. Timeouts are not among them: a second engine
would begin the same long work anew."""

RETRIABLE_STATUS = (429, 502, 503)
"""What a busy or starting engine says (vLLM, SGLang, llama.cpp 503; TGI 429). A 500 may be the request's own doing,
unless it says that the engine is dead or out of memory (``another_may_do_better``)."""


MAX_INT64 = 2**63 - 1

_ANSWERED_AT_ONCE = {
    DECISION_FILTER: Any.pack(ext_proc.ExtProcPerRoute(disabled=True)),
    BUFFER_FILTER: Any.pack(buffer.BufferPerRoute(disabled=True)),
}
"""For what is answered by its headers alone."""

USAGE_PROTOCOLS = {"responses": ai_pb2.OPENAI_RESPONSES, "messages": ai_pb2.ANTHROPIC_MESSAGES}
"""How answers tell their token usage, by what the decision says in ``usage``, where it is not the filter's default."""


def route_configuration(config: Config, elsewhere: frozenset[str] = frozenset()) -> route.RouteConfiguration:
    """Return all routes; what is decided for a pool that is ``elsewhere``, at other Envoys, is refused.

    A request starts on one of the last, and stays there until ext_proc names a pool in metadata and clears the route
    cache: without a decision it goes nowhere. (Envoy 1.40 clears the cache only if the reply has a header mutation, an
    empty one included.)
    """
    here = (route for pool in config.pools if pool.name not in elsewhere for route in of_pool(pool, config))
    return table(config, [*before_pools(), *here, *after_pools(config, elsewhere)])


def before_pools() -> list[route.Route]:
    """Return the routes that come first."""
    return [_no_tunnels()]


def after_pools(config: Config, elsewhere: frozenset[str]) -> list[route.Route]:
    """Return the routes that come last."""
    return [
        *(_elsewhere(pool, config.limits) for pool in sorted(elsewhere)),
        *(_open(way, config.limits) for way in fail_open.ways(config, elsewhere)),
        _too_large(config.limits),
        *_undecided(config),
    ]


def table(config: Config, routes: list[route.Route]) -> route.RouteConfiguration:
    """Return the configuration that holds ``routes``."""
    host = route.VirtualHost(
        name=ROUTES,
        domains=["*"],
        # Read by what runs before each attempt (``endings``).
        include_request_attempt_count=True,
        routes=routes,
    )
    return route.RouteConfiguration(
        name=ROUTES,
        virtual_hosts=[host],
        # Token usage cannot be read out of a compressed answer; the other one was for Envoy.
        request_headers_to_remove=["accept-encoding", DEADLINE_HEADER, *credentials.of_callers(config)],
        # What an engine says to gateways is not for clients.
        response_headers_to_remove=[SERVED_KEY, ENDING_HEADER, "endpoint-load-metrics"],
        response_headers_to_add=[*credentials.told(config), *queues.told(config)],
    )


def _elsewhere(pool: str, limits: Limits) -> route.Route:
    """Return what answers a request that was decided for a pool which these Envoys do not have."""
    return route.Route(
        name=f"{pool}/elsewhere",
        match=route.RouteMatch(prefix="/", dynamic_metadata=[_decision_has("pool", pool)]),
        request_body_buffer_limit=limits.max_body_bytes,
        direct_response=route.DirectResponseAction(status=404),
    )


def of_pool(pool: Pool, config: Config) -> list[route.Route]:
    """Return one route for each form of usage, because it is the route that tells Envoy's reader which it is.

    Before them, the same for each path by which engines are asked in place of the client's: in one exchange a decision
    cannot set ``:path``, and need not be allowed to. And before those, the same for whatever bounds requests in place
    of what the pool says.
    """
    return [
        _decided(pool, config.limits, usage, path, bounds)
        for bounds, path in ways_to(config.routes, pool.name)
        for usage in (*USAGE_PROTOCOLS, None)
    ]


def _decided(pool: Pool, limits: Limits, usage: str | None, path: str | None, bounds: Bounds) -> route.Route:
    needed = [_decision_has("pool", pool.name)]
    if bounds.key:
        needed.append(_decision_has("bounds", bounds.key))
    if usage is not None:
        needed.append(_decision_has("usage", usage))
    if path is not None:
        needed.append(_decision_has("path", path))
    return route.Route(
        name="/".join((pool.name, *(part.strip("/") for part in (usage, path, bounds.key) if part))),
        match=route.RouteMatch(prefix="/", dynamic_metadata=needed),
        typed_per_filter_config={
            **({} if usage is None else {USAGE_FILTER: _usage_told_as(USAGE_PROTOCOLS[usage])}),
            **(read_answers() if pool.usage == "stream" else {}),
        },
        # A retry needs the whole body again: what is not buffered is not retried.
        request_body_buffer_limit=limits.max_body_bytes,
        route=_to_the_pool(pool, limits, path, bounds),
    )


def _to_the_pool(
    pool: Pool, limits: Limits, path: str | None = None, bounds: Bounds = AS_THE_POOL
) -> route.RouteAction:
    most = pool.timeout_seconds if bounds.timeout_seconds is None else bounds.timeout_seconds
    return route.RouteAction(
        cluster=pool.name,
        regex_rewrite=None if path is None else _all_but_the_query(path),
        timeout=seconds(0),
        # Of the whole stream; ``timeout`` is the answer's alone, and outlier detection holds it against endpoints.
        max_stream_duration=route.RouteActionMaxStreamDuration(
            max_stream_duration=seconds(most),
            grpc_timeout_header_max=seconds(most),
        ),
        idle_timeout=seconds(bounds.idle_timeout_seconds or pool.idle_timeout_seconds or limits.idle_timeout_seconds),
        request_mirror_policies=_mirrors(pool),
        retry_policy=route.RetryPolicy(
            retry_on=RETRY_ON,
            retriable_status_codes=list(RETRIABLE_STATUS),
            retriable_headers=another_may_do_better(),
            num_retries=pool.retries if bounds.retries is None else bounds.retries,
            retry_host_predicate=[other_hosts()],
            host_selection_retry_max_attempts=3,
            retry_back_off=route.RetryPolicyRetryBackOff(base_interval=seconds(0.01), max_interval=seconds(0.05)),
        ),
    )


def _mirrors(pool: Pool) -> list[route.RouteActionRequestMirrorPolicy]:
    """Return who gets copies. Envoy balances them by itself: no decision was made for them, and none is waited for."""
    if pool.mirror is None:
        return []
    million = envoy_type.FractionalPercentDenominatorType.MILLION
    share = envoy_type.FractionalPercent(numerator=round(pool.mirror.percent * 10_000), denominator=million)
    return [
        route.RouteActionRequestMirrorPolicy(
            cluster=pool.mirror.pool, runtime_fraction=core.RuntimeFractionalPercent(default_value=share)
        )
    ]


def _all_but_the_query(path: str) -> matcher.RegexMatchAndSubstitute:
    """Return the rewrite of whatever path there is; Envoy leaves the query as it is."""
    return matcher.RegexMatchAndSubstitute(pattern=matcher.RegexMatcher(regex="^.*$"), substitution=path)


def _open(way: fail_open.Way, limits: Limits) -> route.Route:
    """Return the route of undecided requests that a pool takes, or that one does not take."""
    told = {} if way.usage is None else {USAGE_FILTER: _usage_told_as(USAGE_PROTOCOLS[way.usage])}
    nowhere = route.RouteAction(cluster=UNDECIDED_CLUSTER, timeout=seconds(0))
    return route.Route(
        name=way.name,
        # In Envoy's statistics, which tell of them also while nobody reads its log.
        stat_prefix="" if way.pool is None else f"open_{way.pool.name}",
        match=way.match,
        typed_per_filter_config=told,
        request_body_buffer_limit=limits.max_body_bytes,
        route=nowhere if way.pool is None else _to_the_pool(way.pool, limits),
    )


def _no_tunnels() -> route.Route:
    """Return what CONNECT meets: it has no end, and a decision would wait for it. Envoy refuses it with 403 or 405."""
    return route.Route(
        name="tidegate_no_tunnels",
        match=route.RouteMatch(connect_matcher=route.RouteMatchConnectMatcher()),
        typed_per_filter_config=_ANSWERED_AT_ONCE,
        direct_response=route.DirectResponseAction(status=405),
    )


FAR_TOO_LARGE = 1_048_576
"""How far over the limit a body is refused before it is sent. An answer before a body's end breaks the connection, and
clients that read nothing until they have sent everything (Python's urllib) see that break instead of the answer. Of a
body that is little too large the rest fits into the sockets, and Envoy's own answer, at the limit, is read by all."""


def _too_large(limits: Limits) -> route.Route:
    """Return what answers a request that says it is far too large before anything of its body is taken."""
    too_long = envoy_type.Int64Range(start=limits.max_body_bytes + FAR_TOO_LARGE + 1, end=MAX_INT64)
    return route.Route(
        name=TOO_LARGE,
        match=route.RouteMatch(prefix="/", headers=[route.HeaderMatcher(name="content-length", range_match=too_long)]),
        typed_per_filter_config=_ANSWERED_AT_ONCE,
        direct_response=route.DirectResponseAction(status=413),
    )


def _undecided(config: Config) -> list[route.Route]:
    """Return the routes that requests have until there is a decision: in one exchange where that is possible."""
    nowhere = route.Route(
        name=UNDECIDED_CLUSTER,
        match=route.RouteMatch(prefix="/"),
        request_body_buffer_limit=config.limits.max_body_bytes,
        route=route.RouteAction(cluster=UNDECIDED_CLUSTER, timeout=seconds(0)),
    )
    routes = [nowhere]
    if config.control.ext_proc_exchanges == 1:
        routes.insert(0, _narrowed(nowhere, in_one_alone(config), {DECISION_FILTER: in_one()}))
    if fail_open.wanted(config):
        read = {fail_open.READER: fail_open.reader(on=True)}
        routes = [*(_narrowed(one, fail_open.readable(), read) for one in routes), *routes]
    return routes


def _narrowed(one: route.Route, headers: list[route.HeaderMatcher], settings: dict[str, Any]) -> route.Route:
    """Return ``one`` for the requests that have ``headers`` besides, with more ``settings`` of filters."""
    match = route.RouteMatch(prefix="/", headers=[*(one.match.headers if one.match else []), *headers])
    return dataclasses.replace(one, match=match, typed_per_filter_config={**one.typed_per_filter_config, **settings})


def _decision_has(key: str, value: str) -> matcher.MetadataMatcher:
    return matcher.MetadataMatcher(
        filter=DECISION_NAMESPACE,
        path=[matcher.MetadataMatcherPathSegment(key=key)],
        value=matcher.ValueMatcher(string_match=matcher.StringMatcher(exact=value)),
    )


def _usage_told_as(protocol: ai_pb2.LLMProtocol) -> Any:
    response = ai_pb2.ResponsePerRoute(llm_protocol=protocol)
    return Any(
        type_url="type.googleapis.com/envoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManagerPerRoute",
        value=ai_pb2.AiProtocolManagerPerRoute(response=response).SerializeToString(deterministic=True),
    )


def other_hosts() -> route.RetryPolicyRetryHostPredicate:
    """Return the predicate by which a retry goes to a host that was not tried."""
    return route.RetryPolicyRetryHostPredicate(
        name="envoy.retry_host_predicates.previous_hosts",
        typed_config=Any.pack(previous_hosts.PreviousHostsPredicate()),
    )
