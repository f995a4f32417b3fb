"""What a real Envoy says it runs with: every default that would break inference traffic is set otherwise."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.stack import configuration, engines, fetch, up
from tidegate.config_limits import Limits

LIMITS = Limits()
POOL, EXT_PROC = "cluster default", "cluster tidegate_ext_proc"
DECIDED, UNDECIDED = "route default", "route tidegate_undecided"

# What it is set in, where, and to what; behind it, what Envoy's own default does.
SETTINGS = [
    (DECIDED, "request_body_buffer_limit", str(LIMITS.max_body_bytes)),  # 1 MiB: 413, and no retry
    (
        UNDECIDED,
        "request_body_buffer_limit",
        str(LIMITS.max_body_bytes),
    ),  # it is this one that holds before the decision
    (DECIDED, "route.timeout", "0s"),  # 15 s: cuts long answers
    (DECIDED, "route.idle_timeout", f"{LIMITS.idle_timeout_seconds:.0f}s"),  # none without a timeout
    (DECIDED, "route.retry_policy.retry_host_predicate.0.name", "envoy.retry_host_predicates.previous_hosts"),
    (POOL, "circuit_breakers.thresholds.0.max_requests", 100_000),  # 1024: 503
    (POOL, "circuit_breakers.thresholds.0.max_connections", 100_000),
    (POOL, "circuit_breakers.thresholds.0.max_pending_requests", 100_000),
    (
        POOL,
        "circuit_breakers.thresholds.0.retry_budget.budget_percent.value",
        20,
    ),  # none, but 3 retries: none under load
    (POOL, "common_lb_config.healthy_panic_threshold", {}),  # 50 %: sick hosts get traffic; empty is 0
    (POOL, "ignore_health_on_host_removal", True),  # false: a removed host may stay
    (
        POOL,
        "load_balancing_policy.policies.0.typed_extension_config.name",
        "envoy.load_balancing_policies.override_host",
    ),
    (EXT_PROC, "circuit_breakers.thresholds.0.max_requests", 1_000_000),  # 1024: the 1025th that waits fails
    (
        "manager",
        "stream_idle_timeout",
        "310s",
    ),  # five minutes, which may be less than a wait for room or a first token take
    ("manager", "access_log_options.access_log_flush_interval", "10s"),  # never: leases would run out
    (
        "manager",
        "access_log.0.typed_config.common_config.buffer_size_bytes",
        16_777_216,
    ),  # 16 KB: of many answers that end together, most ends are lost
    ("filter ext_proc", "message_timeout", f"{LIMITS.decision_timeout_seconds:.0f}s"),  # 200 ms: 504
    ("filter ext_proc", "max_message_timeout", "305s"),  # 0: who waits for room cannot say so, and gets 504
    ("filter ext_proc", "failure_mode_allow", None),  # not set is false
    ("filter ext_proc", "status_on_error.code", "ServiceUnavailable"),
    ("filter ext_proc", "processing_mode.request_body_mode", "BUFFERED"),
    ("filter buffer", "max_request_bytes", LIMITS.max_body_bytes),
    ("filter ext_proc", "processing_mode.response_header_mode", "SKIP"),  # SEND: a round trip more
    ("filter ext_proc", "processing_mode.response_body_mode", None),  # not set is NONE
    ("filter ext_proc", "mutation_rules.disallow_expression.regex", "^(:.*|content-length|transfer-encoding|host)$"),
    ("filter ext_proc", "grpc_service.retry_policy.num_retries", 19),  # none: what a dying replica holds fails
    ("filter ai_protocol_manager", "response_handling.token_usage.limits.max_parsed_sse_events", 1_000_000),
    ("filter ai_protocol_manager", "response_handling.token_usage.limits.max_json_body_size", 10_485_760),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """The parts of Envoy's configuration, by what and name."""
    folder = tmp_path_factory.mktemp("settings")
    with engines(folder, "h100") as ports, up(folder, configuration(ports)) as stack:
        assert stack.ask()[0] == 200
        _, dump, _ = fetch(f"http://127.0.0.1:{stack.config['envoy']['admin_port']}/config_dump?include_eds")
    kinds = {config["@type"].rsplit(".", 1)[1]: config for config in dump["configs"]}
    (listener,) = kinds["ListenersConfigDump"]["dynamic_listeners"]
    manager = listener["active_state"]["listener"]["filter_chains"][0]["filters"][0]["typed_config"]
    (routes,) = kinds["RoutesConfigDump"]["dynamic_route_configs"]
    parts = {"manager": manager}
    parts |= {
        f"cluster {entry['cluster']['name']}": entry["cluster"]
        for entry in kinds["ClustersConfigDump"]["dynamic_active_clusters"]
    }
    parts |= {f"route {route['name']}": route for route in routes["route_config"]["virtual_hosts"][0]["routes"]}
    parts |= {f"filter {one['name'].rsplit('.', 1)[1]}": one["typed_config"] for one in manager["http_filters"]}
    return parts


@pytest.mark.parametrize(("part", "path", "value"), SETTINGS)
def test_a_default_that_breaks_inference_is_set_otherwise(
    running: Mapping[str, Any], part: str, path: str, value: object
) -> None:
    found: Any = running[part]
    for key in path.split("."):
        found = found[int(key)] if key.isdigit() else found.get(key)
    assert found == value
