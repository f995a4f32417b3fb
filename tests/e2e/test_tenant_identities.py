"""Who asks, as a proxy in front says; nobody at all; and what engines see of it. A real Envoy, in two exchanges."""

import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.echoing_engine import echoing
from tests.e2e.stack import Stack, configuration, until, up
from tests.e2e.unread import LARGE, answered_unsent, taken_of_a_flood
from tidegate.runtime.callers import hashed

KEY = f"sk-test-{'1' * 32}"
TENANTS: dict[str, Any] = {
    "authentication": {"identity_header": "x-tenant-id", "anonymous": "guest"},
    "tenants": [
        {"name": "acme", "identities": ["spiffe://acme/ci"], "limits": {"requests_per_minute": 1000}},
        {"name": "other", "limits": {"requests_per_minute": 2000}},
        {"name": "guest", "limits": {"requests_per_minute": 3000}},
    ],
    "keys": [{"name": "k", "tenant": "other", "hash": hashed(KEY)}],
}
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}).encode()
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with echoing() as port:
        config = {**configuration([port], engine="none"), **TENANTS}
        config["control"]["ext_proc_exchanges"] = 2
        with up(tmp_path_factory.mktemp("identities"), config) as running:
            yield running


def ask(stack: Stack, **headers: str) -> tuple[int, Any, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", stack.config["listener"]["port"], timeout=20)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", "/v1/chat/completions", BODY, {**JSON, **sent})
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return answer.status, body, {name.lower(): value for name, value in answer.getheaders()}


@pytest.mark.parametrize(
    ("headers", "limit"),
    [
        ({"x_tenant_id": "acme"}, "1000"),
        ({"x_tenant_id": "spiffe://acme/ci", "authorization": "Bearer ey.a.jwt"}, "1000"),
        ({"X_Tenant_Id": "acme", "x_api_key": KEY}, "1000"),
        ({"authorization": f"Bearer {KEY}"}, "2000"),
        ({}, "3000"),
    ],
)
def test_it_is_known_whose_limits_count(stack: Stack, headers: dict[str, str], limit: str) -> None:
    status, _, said = ask(stack, **headers)
    assert (status, said["x-ratelimit-limit-requests"]) == (200, limit)


@pytest.mark.parametrize(
    "headers", [{"x_tenant_id": "nobody"}, {"x_api_key": "sk-wrong"}, {"authorization": "Basic x"}]
)
def test_who_says_something_wrong_is_not_anonymous(stack: Stack, headers: dict[str, str]) -> None:
    assert ask(stack, **headers)[0] == 401


def test_an_engine_sees_nothing_of_who_asks(stack: Stack) -> None:
    for headers in ({"x_tenant_id": "acme"}, {"authorization": f"Bearer {KEY}"}, {"x_api_key": KEY}):
        _, answer, _ = ask(stack, **headers)
        assert {"authorization", "x-api-key", "x-tenant-id"}.isdisjoint(answer["seen"])


def test_in_two_exchanges_a_wrong_key_is_refused_before_the_body_is_sent(stack: Stack) -> None:
    assert answered_unsent(stack).startswith(b"HTTP/1.1 401 ")
    assert taken_of_a_flood(stack) < LARGE / 4


def test_tenants_can_be_taken_away_and_brought_back_while_requests_run(stack: Stack) -> None:
    wrong: list[Any] = []
    stop = threading.Event()

    def keep_asking() -> None:
        while not stop.is_set():
            if (answer := ask(stack, authorization=f"Bearer {KEY}"))[0] != 200:
                wrong.append(answer)

    asking = threading.Thread(target=keep_asking)
    asking.start()
    try:
        for name in TENANTS:
            del stack.config[name]
        stack.write_config()
        until(lambda: _seen(stack, "sk-any") == "sk-any", 10, "keys are the engine's again")
        stack.config.update(TENANTS)
        stack.write_config()
        until(lambda: _told(stack).get("x-ratelimit-limit-requests") == "2000", 10, "everybody is asked")
    finally:
        stop.set()
        asking.join()
    assert wrong == []
    assert ask(stack, x_api_key="sk-any")[0] == 401


def _seen(stack: Stack, key: str) -> str | None:
    """Return the key that an engine sees of a request with ``key``."""
    _, answer, _ = ask(stack, x_api_key=key)
    seen: str | None = answer.get("seen", {}).get("x-api-key")
    return seen


def _told(stack: Stack) -> dict[str, str]:
    """Return the limits that Tidegate tells whoever has the key; the engine's own 7 is none of them."""
    said = ask(stack, authorization=f"Bearer {KEY}")[2]
    return {name: value for name, value in said.items() if name.startswith("x-ratelimit-") and value != "7"}
