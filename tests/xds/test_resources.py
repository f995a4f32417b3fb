"""What the built resources say, read back as Envoy's messages."""

import re
from datetime import timedelta
from typing import Any

import pytest
from envoy_data_plane.envoy.config.cluster.v3 import Cluster
from envoy_data_plane.envoy.config.listener.v3 import Listener
from envoy_data_plane.envoy.config.route.v3 import RouteConfiguration
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExternalProcessor,
    ExtProcPerRoute,
    ProcessingModeBodySendMode,
    ProcessingModeHeaderSendMode,
)
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpConnectionManager
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import HttpProtocolOptions

from protos.ai_pb2 import (
    ANTHROPIC_MESSAGES,
    OPENAI_RESPONSES,
    AiProtocolManager,
    AiProtocolManagerPerRoute,
)
from tests.configurations import parsed
from tests.xds.fleets import config
from tidegate.config import Config
from tidegate.config_control import Control
from tidegate.config_objectives import RequestObjective
from xds import queues
from xds.clusters import HTTP_OPTIONS
from xds.local_replies import REPLIES
from xds.names import ANSWER_FILTER
from xds.resources import resources
from xds.type_urls import CLUSTER, LISTENER, ROUTE


def built(of: Config, type_url: str, name: str) -> bytes:
    return next(one.body for one in resources(of) if (one.type_url, one.name) == (type_url, name))


def connection_manager(of: Config) -> HttpConnectionManager:
    (chain,) = Listener.parse(built(of, LISTENER, "inference")).filter_chains
    (network_filter,) = chain.filters
    assert network_filter.typed_config is not None
    return HttpConnectionManager.parse(network_filter.typed_config.value)


def ext_proc(of: Config) -> ExternalProcessor:
    config_ = connection_manager(of).http_filters[0].typed_config
    assert config_ is not None
    return ExternalProcessor.parse(config_.value)


def seconds(value: timedelta | None) -> float:
    assert value is not None
    return value.total_seconds()


def routes(of: Config) -> list[Any]:
    (host,) = RouteConfiguration.parse(built(of, ROUTE, "inference")).virtual_hosts
    tunnels, *others = host.routes
    assert tunnels.match is not None
    assert tunnels.match.connect_matcher is not None
    assert tunnels.direct_response is not None
    assert tunnels.direct_response.status == 405
    return list(others)


def test_the_last_routes_are_the_only_ones_without_a_decision_and_lead_nowhere() -> None:
    *decided, too_large, whole, last = routes(config("a", "b"))
    assert (too_large.direct_response.status, too_large.route) == (413, None)
    assert {route.route.cluster for route in decided} == {"a", "b"}
    for route in decided:
        needed = route.match.dynamic_metadata[0]
        assert (needed.filter, needed.path[0].key) == ("tidegate", "pool")
        assert needed.value.string_match.exact == route.route.cluster
    assert last.match.dynamic_metadata == whole.match.dynamic_metadata == []
    assert last.route.cluster == whole.route.cluster
    empty = Cluster.parse(built(config("a", "b"), CLUSTER, last.route.cluster))
    assert empty.load_assignment is None
    assert empty.eds_cluster_config is None


def test_a_request_whose_body_is_announced_is_asked_about_in_one_exchange() -> None:
    *_, whole, other = routes(config("a"))
    names = [matcher.name for matcher in whole.match.headers]
    assert names == [":method", "content-length", "x-request-timeout", "x-request-priority"]
    objectives = config("a").model_copy(update={"objectives": (RequestObjective(name="batch", priority=-1),)})
    *_, named, _ = routes(objectives)
    assert [matcher.name for matcher in named.match.headers] == [*names, "x-tidegate-objective"]
    setting = ExtProcPerRoute.parse(whole.typed_per_filter_config["envoy.filters.http.ext_proc"].value)
    assert setting.overrides is not None
    mode = setting.overrides.processing_mode
    assert mode is not None
    assert mode.request_header_mode is ProcessingModeHeaderSendMode.SKIP
    assert mode.request_body_mode is ProcessingModeBodySendMode.BUFFERED
    assert other.typed_per_filter_config == {}
    mode = ext_proc(config("a")).processing_mode
    assert mode is not None
    assert mode.request_header_mode is ProcessingModeHeaderSendMode.SEND


@pytest.mark.parametrize(
    ("tenants", "length", "fits"),
    [
        ([], "20000000", True),
        ([{"name": "acme"}], "20000000", False),
        ([{"name": "acme"}], "100000", False),
        ([{"name": "acme"}], "0099999", True),
        ([{"name": "acme"}], "0", False),
    ],
)
def test_long_bodies_are_not_taken_before_it_is_known_who_sends_them(
    tenants: list[dict[str, str]], length: str, fits: bool
) -> None:
    pools = [{"name": "a", "engine": "none", "endpoints": [{"address": "127.0.0.1:1"}]}]
    *_, whole, _ = routes(parsed({"pools": pools, "tenants": tenants}))
    (said,) = [one.string_match for one in whole.match.headers if one.name == "content-length"]
    assert said is not None
    assert said.safe_regex is not None
    assert (re.fullmatch(said.safe_regex.regex, length) is not None) == fits


def test_two_exchanges_can_be_asked_for() -> None:
    two = config("a").model_copy(update={"control": Control(ext_proc_exchanges=2)})
    assert [route.name for route in routes(two)].count("tidegate_undecided") == 1
    assert [route.name for route in routes(config("a"))].count("tidegate_undecided") == 2


def test_the_route_says_how_an_answer_tells_its_usage_and_the_pools_own_comes_last() -> None:
    *decided, _, _, _ = routes(config("a"))
    told = []
    for route in decided:
        packed = route.typed_per_filter_config.get("envoy.filters.http.ai_protocol_manager")
        protocol = None if packed is None else AiProtocolManagerPerRoute.FromString(packed.value).response.llm_protocol
        usage = {
            match.value.string_match.exact for match in route.match.dynamic_metadata if match.path[0].key == "usage"
        }
        told.append((route.name, usage, protocol))
    assert told == [
        ("a/responses", {"responses"}, OPENAI_RESPONSES),
        ("a/messages", {"messages"}, ANTHROPIC_MESSAGES),
        ("a", set(), None),
    ]


def test_every_route_buffers_bodies_up_to_the_limit() -> None:
    *others, too_large, whole, last = routes(config("a", limits={"max_body_bytes": 123_456}))
    for route in (*others, whole, last):
        assert route.request_body_buffer_limit == 123_456
    (length,) = too_large.match.headers
    assert (length.name, length.range_match.start) == ("content-length", 123_456 + 1_048_576 + 1)


def test_answers_may_last_for_ever_but_not_be_silent_for_ever() -> None:
    *decided, _, _, _ = routes(config("a", limits={"idle_timeout_seconds": 77.0}))
    assert seconds(decided[0].route.timeout) == 0
    assert seconds(decided[0].route.idle_timeout) == 77


def test_a_pool_bounds_the_whole_stream_and_a_deadline_may_only_shorten_it() -> None:
    pools = (
        {"name": "a", "endpoints": ({"address": "127.0.0.1:1"},)},
        {"name": "b", "models": ("b",), "timeout_seconds": 7.5, "endpoints": ({"address": "127.0.0.1:2"},)},
    )
    bounds = {
        route.route.cluster: (
            seconds(route.route.max_stream_duration.max_stream_duration),
            seconds(route.route.max_stream_duration.grpc_timeout_header_max),
        )
        for route in routes(Config.model_validate({"pools": pools}))[:-3]
    }
    assert bounds == {"a": (0, 0), "b": (7.5, 7.5)}


def test_retries_are_as_many_as_the_pool_says_and_go_to_other_hosts() -> None:
    policy = routes(config("a"))[0].route.retry_policy
    assert policy.num_retries == 2
    assert policy.retry_host_predicate[0].name == "envoy.retry_host_predicates.previous_hosts"
    assert 500 not in policy.retriable_status_codes
    assert "5xx" not in policy.retry_on


def test_the_idle_timeout_of_streams_never_ends_a_wait_for_a_decision() -> None:
    limits = {"idle_timeout_seconds": 5.0, "decision_timeout_seconds": 60.0}
    of = config("a", limits=limits)
    assert seconds(connection_manager(of).stream_idle_timeout) > 60
    assert seconds(ext_proc(of).message_timeout) == 60


def test_envoy_may_be_asked_to_wait_for_longer_than_any_request_waits_for_its_turn() -> None:
    of = config("a")
    assert seconds(ext_proc(of).max_message_timeout) > 300
    assert seconds(connection_manager(of).stream_idle_timeout) > seconds(ext_proc(of).max_message_timeout)
    table = RouteConfiguration.parse(built(of, ROUTE, "inference"))
    told = [option.header.key for option in table.response_headers_to_add if option.header]
    assert told == list(queues.TOLD)


def test_ext_proc_fails_closed_and_may_not_smuggle() -> None:
    processor = ext_proc(config("a"))
    assert processor.failure_mode_allow is False
    assert processor.status_on_error is not None
    assert int(processor.status_on_error.code) == 503
    assert processor.mutation_rules is not None
    assert processor.mutation_rules.disallow_expression is not None
    assert processor.mutation_rules.disallow_expression.regex == "^(:.*|content-length|transfer-encoding|host)$"


def test_credentials_are_not_sent_to_the_decision() -> None:
    rules = ext_proc(config("a")).forward_rules
    assert rules is not None
    assert rules.allowed_headers is not None
    names = {pattern.exact for pattern in rules.allowed_headers.patterns}
    assert {":path", "content-type"} <= names
    assert not names & {"authorization", "cookie", "x-api-key"}


def test_what_a_session_is_known_by_is_sent_to_the_decision_in_either_kind_of_exchange() -> None:
    usual = ext_proc(config("a"))
    processor = ext_proc(config("a", session={"header": "x-chat", "cookie": "sid"}))
    assert processor.forward_rules is not None
    assert processor.forward_rules.allowed_headers is not None
    names = [pattern.exact for pattern in processor.forward_rules.allowed_headers.patterns]
    assert names[-2:] == ["x-chat", "cookie"]
    more = ["request.headers['x-chat']", "request.headers['cookie']"]
    assert processor.request_attributes == [*usual.request_attributes, *more]
    assert ext_proc(config("a", session={"header": "x-session-id", "body_field": "user"})) == usual


def test_usage_is_read_after_the_decision_and_with_raised_limits() -> None:
    filters = connection_manager(config("a")).http_filters
    assert [one.name.rsplit(".", 1)[1] for one in filters] == ["ext_proc", "buffer", "ai_protocol_manager", "router"]
    packed = filters[2].typed_config
    assert packed is not None
    usage = AiProtocolManager.FromString(packed.value).response_handling.token_usage
    assert usage.metadata_namespace == "ai_usage"
    assert usage.limits.max_parsed_sse_events.value == 1_000_000


@pytest.mark.parametrize(("engine", "requests"), [("vllm", None), ("llamacpp", 90)])
def test_connections_are_given_up_before_the_engine_gives_them_up(engine: str, requests: int | None) -> None:
    pools = ({"name": "a", "engine": engine, "endpoints": ({"address": "127.0.0.1:1"},)},)
    cluster = Cluster.parse(built(Config.model_validate({"pools": pools}), CLUSTER, "a"))
    http = HttpProtocolOptions.parse(cluster.typed_extension_protocol_options[HTTP_OPTIONS].value)
    assert http.common_http_protocol_options is not None
    assert seconds(http.common_http_protocol_options.idle_timeout) < 5
    assert http.common_http_protocol_options.max_requests_per_connection == requests


def pool_with(**keys: Any) -> Config:
    return Config.model_validate({"pools": ({"name": "a", "endpoints": ({"address": "127.0.0.1:1"},), **keys},)})


def test_no_answer_passes_through_us_unless_a_pool_wants_it() -> None:
    names = [one.name for one in connection_manager(pool_with()).http_filters]
    assert names == [
        "envoy.filters.http.ext_proc",
        "envoy.filters.http.buffer",
        "envoy.filters.http.ai_protocol_manager",
        "envoy.filters.http.router",
    ]
    assert not [route for route in routes(pool_with()) if ANSWER_FILTER in route.typed_per_filter_config]


def test_answers_to_be_read_pass_through_us_and_go_on_without_us() -> None:
    *_, reader, _ = connection_manager(pool_with(usage="stream")).http_filters
    assert reader.name == ANSWER_FILTER
    assert reader.typed_config is not None
    processor = ExternalProcessor.parse(reader.typed_config.value)
    assert processor.failure_mode_allow is True
    options = processor.metadata_options
    assert options is not None
    assert options.forwarding_namespaces is not None
    assert options.receiving_namespaces is not None
    assert list(options.forwarding_namespaces.untyped) == ["tidegate"]
    assert list(options.receiving_namespaces.untyped) == ["tidegate_answer"]


def test_only_the_routes_of_a_pool_that_wants_it_have_answers_read() -> None:
    pools = (
        {"name": "a", "models": ("a",), "usage": "stream", "endpoints": ({"address": "127.0.0.1:1"},)},
        {"name": "b", "models": ("b",), "endpoints": ({"address": "127.0.0.1:2"},)},
    )
    of = Config.model_validate({"pools": pools})
    *_, reader, _ = connection_manager(of).http_filters
    assert reader.typed_config is not None
    modes = {"": ExternalProcessor.parse(reader.typed_config.value).processing_mode}
    for route in routes(of):
        if ANSWER_FILTER in route.typed_per_filter_config:
            overrides = ExtProcPerRoute.parse(route.typed_per_filter_config[ANSWER_FILTER].value).overrides
            assert overrides is not None
            modes[route.name] = overrides.processing_mode
    assert set(modes) == {"", "a", "a/responses", "a/messages"}
    for name, mode in modes.items():
        assert mode is not None
        assert (mode.request_header_mode.name, mode.request_body_mode.name) == ("SKIP", "NONE")
        read = (mode.response_header_mode.name, mode.response_body_mode.name)
        assert read == (("SEND", "STREAMED") if name else ("SKIP", "NONE"))


@pytest.mark.parametrize(
    ("keys", "settable"),
    [
        ({}, False),
        ({"usage": "stream"}, True),
        ({"usage": "stream", "inject_usage": False}, False),
        ({"inject_usage": True}, True),
    ],
)
def test_the_length_of_a_body_can_be_set_only_where_bodies_are_changed(keys: dict[str, Any], settable: bool) -> None:
    rules = ext_proc(pool_with(**keys)).mutation_rules
    assert rules is not None
    assert rules.disallow_expression is not None
    assert ("content-length" not in rules.disallow_expression.regex) == settable
    assert "transfer-encoding|host" in rules.disallow_expression.regex


def test_a_busy_engine_is_not_ejected_and_a_removed_one_is_gone() -> None:
    cluster = Cluster.parse(built(config("a"), CLUSTER, "a"))
    assert cluster.ignore_health_on_host_removal is True
    assert cluster.common_lb_config is not None
    assert cluster.common_lb_config.healthy_panic_threshold is not None
    assert cluster.common_lb_config.healthy_panic_threshold.value == 0
    detection = cluster.outlier_detection
    assert detection is not None
    assert detection.split_external_local_origin_errors is True
    assert detection.enforcing_consecutive_5xx == 0
    assert not detection.enforcing_consecutive_gateway_failure


@pytest.mark.parametrize(("transport", "log_port"), [("grpc", 1), ("h2", 2)])
def test_the_control_plane_is_reached_where_it_is_advertised(transport: str, log_port: int) -> None:
    control = {"address": "0.0.0.0", "advertise": "10.1.2.3", "xds_port": 1, "ext_proc_port": 2}
    of = config("a", control={**control, "ext_proc_transport": transport})
    for name, port in (("tidegate_ext_proc", 2), ("tidegate_access_log", log_port)):
        assignment = Cluster.parse(built(of, CLUSTER, name)).load_assignment
        assert assignment is not None
        member = assignment.endpoints[0].lb_endpoints[0].endpoint
        assert member is not None
        assert member.address is not None
        assert member.address.socket_address is not None
        assert (member.address.socket_address.address, member.address.socket_address.port_value) == ("10.1.2.3", port)


def test_every_local_reply_has_a_message_that_names_no_internals() -> None:
    for reply in REPLIES:
        assert "%" not in reply.message
        assert "upstream" not in reply.message.lower()
        assert "envoy" not in reply.message.lower()
