"""The policy ``predicted_latency`` with a real Envoy: it learns which engine is fast, and uses it."""

import http.client
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.e2e.stack import MODEL, Stack, configuration, engines, fetch, until, up


def stream(stack: Stack, number: int) -> str:
    """Have one answer streamed to its end; return the address that served it."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.config["listener"]["port"], timeout=60)
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"{number} " + "word " * 300}],
        "max_tokens": 40,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200
    assert b"[DONE]" in answer.read()
    served = answer.headers["x-served-by"]
    connection.close()
    assert served is not None
    return served


def test_the_faster_engine_is_found_without_weights_or_a_gpu(tmp_path: Path) -> None:
    with (
        engines(tmp_path, "rtx4090", "h100") as ports,
        up(tmp_path, configuration(ports, policy="predicted_latency")) as stack,
        ThreadPoolExecutor(4) as clients,
    ):
        slow, fast = (f"127.0.0.1:{port}" for port in ports)

        def pace(address: str) -> dict[str, Any]:
            _, page, _ = fetch(f"http://127.0.0.1:{stack.config['admin']['port']}/status")
            known = next(one for one in page["pools"][0]["endpoints"] if one["address"] == address)
            return dict(known["pace"])

        assert pace(slow) | {"kv_tokens": 0} == pace(fast) | {"kv_tokens": 0}, "nothing is known of them yet"
        list(clients.map(lambda number: stream(stack, number), range(60)))
        until(lambda: stack.inflight() == {}, 10, "all have ended, and taught")
        assert pace(fast)["step_seconds"] < 0.8 * pace(slow)["step_seconds"]
        served = Counter(clients.map(lambda number: stream(stack, number), range(60, 120)))
        assert served[fast] > 2 * served[slow]
        # Envoy's own balancer, which serves where no pick can, is told as well.
        until(lambda: weights(stack)[fast] > 1.2 * weights(stack)[slow], 15, "Envoy knows the faster one")


def weights(stack: Stack) -> dict[str, int]:
    """What Envoy was told of the pool's endpoints, by address."""
    _, dump, _ = fetch(f"http://127.0.0.1:{stack.config['envoy']['admin_port']}/config_dump?include_eds")
    (found,) = (part for part in dump["configs"] if part["@type"].endswith("EndpointsConfigDump"))
    assignments = [one["endpoint_config"] for one in found["dynamic_endpoint_configs"]]
    (pool,) = (one for one in assignments if one["cluster_name"] == "default")
    members = [member for locality in pool["endpoints"] for member in locality["lb_endpoints"]]
    sockets = [(one["endpoint"]["address"]["socket_address"], one["load_balancing_weight"]) for one in members]
    return {f"{socket['address']}:{socket['port_value']}": weight for socket, weight in sockets}
