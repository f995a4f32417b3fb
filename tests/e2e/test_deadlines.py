"""How long a request may take: by its client's header, and by its pool."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.stack import MODEL, Stack, configuration, engines, fetch, until, up

CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
SLOW = {"slow": 40}
"""So slow that a token takes a quarter of a second, about."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("deadlines")
    with engines(folder, "h100", "h100", "h100") as (sound, *hanging):
        for port in hanging:
            fetch(f"http://127.0.0.1:{port}/fault", {"hang": True})
        config = configuration([sound])
        config["pools"] = [
            config["pools"][0],
            {**config["pools"][0], "name": "stuck", "models": ["stuck"], "policy": "random"},
            {**config["pools"][0], "name": "bounded", "models": ["bounded"], "timeout_seconds": 1.0},
        ]
        for pool, port in zip(config["pools"][1:], hanging, strict=True):
            pool["endpoints"] = [{"address": f"127.0.0.1:{port}"}]
        with up(folder, config) as running:
            yield running


def _ask(
    stack: Stack, body: dict[str, Any], path: str = "/v1/chat/completions", **headers: str
) -> tuple[int, Any, float]:
    """Return status, JSON and the seconds that it took."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.config["listener"]["port"], timeout=20)
    named = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    began = time.monotonic()
    try:
        connection.request("POST", path, json.dumps(body), named)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), time.monotonic() - began
    finally:
        connection.close()


def test_a_request_within_its_deadline_is_served(stack: Stack) -> None:
    status, answer, _ = _ask(stack, CHAT, x_request_timeout="20.5")

    assert (status, answer["object"]) == (200, "chat.completion")


@pytest.mark.parametrize(("path", "told"), [("/v1/chat/completions", "server_error"), ("/v1/messages", None)])
def test_a_request_beyond_its_deadline_is_answered_with_504_in_the_apis_form(
    stack: Stack, path: str, told: str | None
) -> None:
    status, answer, took = _ask(stack, {**CHAT, "model": "stuck"}, path, x_request_timeout="0.7")

    assert status == 504
    assert 0.65 <= took < 5
    if told is None:
        assert answer == {
            "type": "error",
            "error": {"type": "timeout_error", "message": "The answer did not come in time."},
        }
    else:
        assert (answer["error"]["type"], answer["error"]["code"]) == (told, "timeout")


def test_a_pools_own_bound_holds_without_a_header_and_a_header_can_only_shorten_it(stack: Stack) -> None:
    body = {**CHAT, "model": "bounded"}

    for headers, least, most in (({}, 0.95, 5.0), ({"x_request_timeout": "60"}, 0.95, 5.0)):
        status, answer, took = _ask(stack, body, **headers)
        assert (status, answer["error"]["code"]) == (504, "timeout")
        assert least <= took < most
    status, _, took = _ask(stack, body, x_request_timeout="0.2")
    assert status == 504
    assert took < 0.9


def test_deadlines_that_pass_are_counted_as_timeouts_and_eject_nobody(stack: Stack) -> None:
    stack.settle()
    before = stack.total("tidegate_requests_total", pool="stuck", outcome="timeout")
    for _ in range(8):
        assert _ask(stack, {**CHAT, "model": "stuck"}, x_request_timeout="0.05")[0] == 504
    stack.settle()

    assert stack.total("tidegate_requests_total", pool="stuck", outcome="timeout") - before == 8
    admin = f"http://127.0.0.1:{stack.config['envoy']['admin_port']}/stats?filter=ejections_enforced_total&format=json"
    _, stats, _ = fetch(admin)
    assert sum(stat["value"] for stat in stats["stats"]) == 0


@pytest.mark.parametrize("value", ["soon", "-1", "0", "1e3", "", "nan"])
def test_a_malformed_deadline_is_refused_by_its_name(stack: Stack, value: str) -> None:
    status, answer, _ = _ask(stack, CHAT, x_request_timeout=value)

    assert (status, answer["error"]["param"]) == (400, "x-request-timeout")


def test_two_deadlines_are_refused(stack: Stack) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", stack.config["listener"]["port"], timeout=20)
    connection.putrequest("POST", "/v1/chat/completions")
    for name, value in (("x-request-timeout", "5"), ("X-Request-Timeout", "50"), ("content-length", "2")):
        connection.putheader(name, value)
    connection.endheaders(b"{}")
    answer = connection.getresponse()
    status, told = answer.status, json.loads(answer.read())
    connection.close()
    assert (status, told["error"]["param"]) == (400, "x-request-timeout")


def test_a_client_cannot_tell_envoy_itself(stack: Stack) -> None:
    for name in ("grpc_timeout", "x_envoy_upstream_rq_timeout_ms", "x_envoy_upstream_stream_duration_ms"):
        status, answer, _ = _ask(stack, {**CHAT, "max_tokens": 2}, **{name: "1m" if name == "grpc_timeout" else "1"})
        assert (status, answer["object"]) == (200, "chat.completion"), name


def test_an_upload_counts(stack: Stack) -> None:
    body = json.dumps(CHAT).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-request-timeout: 0.5\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", stack.config["listener"]["port"]), timeout=10) as client:
        client.sendall(head.encode() + body[:10])
        time.sleep(0.8)
        client.sendall(body[10:])
        answer = client.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 504 ")
    assert b'"timeout"' in answer


def test_a_streamed_answer_is_cut_off_at_its_deadline(stack: Stack) -> None:
    port = stack.config["pools"][0]["endpoints"][0]["address"].rpartition(":")[2]
    fetch(f"http://127.0.0.1:{port}/fault", SLOW)
    try:
        stack.settle()
        before = stack.total("tidegate_requests_total", pool="default", outcome="timeout")
        connection = http.client.HTTPConnection("127.0.0.1", stack.config["listener"]["port"], timeout=20)
        body = {**CHAT, "max_tokens": 500, "ignore_eos": True, "stream": True}
        headers = {"content-type": "application/json", "x-request-timeout": "1.5"}
        began = time.monotonic()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        assert answer.status == 200
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            answer.read()
        assert 1.4 <= time.monotonic() - began < 8
        connection.close()
        until(
            lambda: stack.total("tidegate_requests_total", pool="default", outcome="timeout") - before == 1,
            5,
            "it is counted as a timeout",
        )
        assert stack.inflight() == {}
    finally:
        fetch(f"http://127.0.0.1:{port}/fault", {})
