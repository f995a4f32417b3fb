"""Who may ask, and how much: keys, limits and budgets, with a real Envoy before simulated engines."""

import http.client
import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from tests.e2e.stack import MODEL, Stack, configuration, engines, tidegate, until, up
from tests.e2e.unread import LARGE, answered_unsent, taken_of_a_flood
from tidegate.runtime.callers import hashed

ALICE, BOB, CAROL, DAVE, EVE = (f"sk-test-{name}-{'0' * 32}" for name in ("alice", "bob", "carol", "dave", "eve"))

TENANTS: dict[str, Any] = {
    "tiers": [
        {"name": "free", "limits": {"requests_per_minute": 600, "tokens_per_minute": 100_000}},
        {"name": "one-at-a-time", "limits": {"requests_in_flight": 1}},
        {"name": "hundred", "limits": {"tokens_per_minute": 100}},
        {"name": "daily", "limits": {"output_tokens_per_day": 40}},
    ],
    "tenants": [
        {"name": "alice", "tier": "free"},
        {"name": "bob", "tier": "hundred"},
        {"name": "carol", "tier": "one-at-a-time"},
        {"name": "dave", "tier": "daily"},
    ],
    "keys": [
        {"name": name, "tenant": name, "hash": hashed(key)}
        for name, key in (("alice", ALICE), ("bob", BOB), ("carol", CAROL), ("dave", DAVE))
    ],
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("tenants")
    with engines(folder, "h100") as ports:
        config = {**configuration(ports), **TENANTS}
        config["control"]["state_dir"] = str(folder)
        with up(folder, config) as running:
            yield running


def ask(
    stack: Stack,
    headers: Mapping[str, str],
    *,
    path: str = "/chat/completions",
    content: str = "hello",
    **body: Any,
) -> tuple[int, Any, Mapping[str, str]]:
    said = {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 8, **body}
    request = urllib.request.Request(
        f"{stack.clients}{path}", json.dumps(said).encode(), {"content-type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read()), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), dict(error.headers)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def budgets(stack: Stack, tenant: str) -> dict[str, int]:
    """Return what is left of the tenant's own limits, by name."""
    with urllib.request.urlopen(f"{stack.admin}/tenants", timeout=5) as answer:
        page = json.loads(answer.read())
    (found,) = [one for one in page["tenants"] if one["name"] == tenant]
    return {limit["limit"]: limit["left"] for budget in found["budgets"] for limit in budget["limits"]}


def test_a_key_opens_in_openais_form_and_in_anthropics(stack: Stack) -> None:
    assert ask(stack, bearer(ALICE))[0] == 200
    assert ask(stack, {"x-api-key": ALICE})[0] == 200
    assert ask(stack, {"Authorization": f"bearer {ALICE}"})[0] == 200
    assert ask(stack, {"x-api-key": ALICE, "anthropic-version": "2023-06-01"}, path="/messages")[0] == 404, (
        "the engine's"
    )


@pytest.mark.parametrize(
    "headers",
    [{}, bearer("sk-nobody"), {"authorization": "Basic YTpi"}, {"x-api-key": EVE}, {**bearer(ALICE), "x-api-key": BOB}],
)
def test_without_a_key_of_somebodys_the_answer_is_401_in_the_clients_form(
    stack: Stack, headers: dict[str, str]
) -> None:
    status, answer, said = ask(stack, headers)
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    assert answer["error"]["type"] == "authentication_error"
    assert said["www-authenticate"] == "Bearer"
    status, answer, _ = ask(stack, {**headers, "anthropic-version": "2023-06-01"}, path="/messages")
    assert (status, answer["type"], answer["error"]["type"]) == (401, "error", "authentication_error")


def test_a_request_without_a_body_is_asked_for_a_key_too(stack: Stack) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{stack.clients}/models", timeout=5)
    with refused.value as error:
        assert error.code == 401
    request = urllib.request.Request(f"{stack.clients}/models", headers=bearer(ALICE))
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert answer.status == 200


def test_in_one_exchange_a_wrong_key_is_refused_before_a_large_body_is_sent(stack: Stack) -> None:
    assert answered_unsent(stack).startswith(b"HTTP/1.1 401 ")
    assert taken_of_a_flood(stack) < LARGE / 4


def test_good_answers_say_what_is_left(stack: Stack) -> None:
    status, _, said = ask(stack, bearer(ALICE))
    assert status == 200
    assert (said["x-ratelimit-limit-requests"], said["x-ratelimit-limit-tokens"]) == ("600", "100000")
    assert 500 < int(said["x-ratelimit-remaining-requests"]) < 600
    assert 90_000 < int(said["x-ratelimit-remaining-tokens"]) < 100_000
    assert said["x-ratelimit-reset-requests"].endswith("ms")


def test_of_many_parallel_requests_only_those_pass_that_the_limit_has_room_for(stack: Stack) -> None:
    until(lambda: budgets(stack, "bob")["tokens_per_minute"] == 100, 70, "bob's bucket is full")
    began = time.monotonic()
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: ask(stack, bearer(BOB), max_tokens=60), range(20)))
    flowed_in = (time.monotonic() - began) * 100 / 60
    used = [answer["usage"]["total_tokens"] for status, answer, _ in answers if status == 200]
    # A first answer that was shorter than expected may have made room for another.
    assert 0 < sum(used) <= 100 + flowed_in
    assert {status for status, _, _ in answers} == {200, 429}
    stack.settle()
    for _ in range(5):
        status, answer, said = ask(stack, bearer(BOB), max_tokens=60)
        if status == 429:
            break
    assert (answer["error"]["code"], answer["error"]["param"]) == ("rate_limit_exceeded", "tokens_per_minute")
    assert answer["error"]["type"] == "tokens"
    assert "tenant 'bob'" in answer["error"]["message"]
    wait = int(said["retry-after"])
    assert 1 <= wait <= 60
    assert said["x-ratelimit-limit-tokens"] == "100"
    # What it says is true: then it passes, and not long before.
    time.sleep(wait)
    assert ask(stack, bearer(BOB), max_tokens=60)[0] == 200


def test_more_than_a_limit_ever_gives_is_not_worth_another_try(stack: Stack) -> None:
    status, answer, said = ask(stack, bearer(BOB), max_tokens=8, content="word " * 200)
    assert status == 429
    assert "retry-after" not in said
    assert said["x-should-retry"] == "false"
    assert "at any time" in answer["error"]["message"]


def test_another_tenant_cannot_be_claimed(stack: Stack) -> None:
    stack.settle()
    before = budgets(stack, "dave")["output_tokens_per_day"]
    claims = {"x-tenant-id": "dave", "x-tenant": "dave", "x-priority": "9999", "x-llm-d-fairness-id": "dave"}
    status, _, said = ask(stack, {**bearer(ALICE), **claims})
    assert (status, said["x-ratelimit-limit-requests"]) == (200, "600")
    assert ask(stack, claims)[0] == 401
    stack.settle()
    assert budgets(stack, "dave")["output_tokens_per_day"] == before


def test_what_was_reserved_is_settled_by_what_was_used(stack: Stack) -> None:
    until(lambda: budgets(stack, "dave")["output_tokens_per_day"] == 40, 10, "dave's day has just begun")
    status, answer, _ = ask(stack, bearer(DAVE), max_tokens=8)
    assert status == 200
    used = answer["usage"]["completion_tokens"]
    until(lambda: budgets(stack, "dave")["output_tokens_per_day"] == 40 - used, 5, "the usage is settled")
    # A second is let in by what is left, and once the day's budget is used up nobody is.
    statuses = [ask(stack, bearer(DAVE), max_tokens=8)[0] for _ in range(10)]
    assert statuses[0] == 200
    assert statuses[-1] == 429
    status, answer, said = ask(stack, bearer(DAVE), max_tokens=40)
    assert (status, answer["error"]["param"]) == (429, "output_tokens_per_day")
    assert 0 < int(said["retry-after"]) <= 86_400


def test_what_a_client_held_that_left_comes_back(stack: Stack) -> None:
    for _ in range(5):
        connection = http.client.HTTPConnection(stack.clients.split("/")[2], timeout=10)
        body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 2000, "stream": True}
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {"content-type": "application/json", **bearer(CAROL)},
        )
        assert connection.getresponse().read(20)
        connection.close()
        until(lambda: budgets(stack, "carol")["requests_in_flight"] == 1, 10, "it came back")
    assert ask(stack, bearer(CAROL))[0] == 200


def test_one_at_a_time_means_one(stack: Stack) -> None:
    until(lambda: budgets(stack, "carol")["requests_in_flight"] == 1, 10, "nothing is in flight")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ask(stack, bearer(CAROL), max_tokens=200), range(8)))
    refused = [one for one in answers if one[0] == 429]
    assert len(refused) == 7
    assert {(one[1]["error"]["param"], one[2]["retry-after"]) for one in refused} == {("requests_in_flight", "1")}


def test_nothing_that_is_printed_holds_a_key_or_its_hash(stack: Stack) -> None:
    assert ask(stack, bearer(ALICE))[0] == 200
    pages = [stack.log(), json.dumps(budgets(stack, "alice"))]
    for page in ("/metrics", "/tenants", "/status"):
        with urllib.request.urlopen(f"{stack.admin}{page}", timeout=5) as answer:
            pages.append(answer.read().decode())
    dump = f"http://127.0.0.1:{stack.config['envoy']['admin_port']}/config_dump"
    with urllib.request.urlopen(dump, timeout=5) as answer:
        pages.append(answer.read().decode())
    for key in (ALICE, BOB, CAROL, DAVE):
        assert not any(key in page or hashed(key).partition(":")[2] in page for page in pages)
    assert stack.total("tidegate_tenant_requests_total", tenant="alice") > 0
    assert stack.total("tidegate_limit", scope="tenant:alice", limit="requests_per_minute") == 600


def test_keys_are_taken_over_while_requests_run(stack: Stack) -> None:
    assert ask(stack, bearer(EVE))[0] == 401
    new = [*TENANTS["keys"][1:], {"name": "eve", "tenant": "alice", "hash": hashed(EVE)}]
    stack.config["keys"] = new
    stack.write_config()
    until(lambda: ask(stack, bearer(EVE))[0] == 200, 10, "the new key opens")
    assert ask(stack, bearer(ALICE))[0] == 401
    stack.config["keys"] = [*TENANTS["keys"]]
    stack.write_config()
    until(lambda: ask(stack, bearer(ALICE))[0] == 200, 10, "the old key is back")
    assert ask(stack, bearer(EVE))[0] == 401


def test_tidegate_tenants_prints_them(stack: Stack) -> None:
    admin = stack.admin.removeprefix("http://")
    shown = subprocess.run(tidegate("tenants", "--admin", admin), capture_output=True, text=True, check=True).stdout
    assert "tenant:alice" in shown
    assert "requests_in_flight" in shown


def test_a_large_body_with_a_key_is_decided_on(stack: Stack) -> None:
    status, answer, _ = ask(stack, bearer(ALICE), content="word " * 25_000)
    assert (status, answer["usage"]["prompt_tokens"] > 20_000) == (200, True)


def test_what_was_used_outlives_the_process_that_counts(stack: Stack) -> None:
    assert ask(stack, bearer(DAVE))[0] in {200, 429}
    stack.settle()
    used = budgets(stack, "dave")["output_tokens_per_day"]
    assert used < 40
    for end in (signal.SIGTERM, signal.SIGKILL):
        time.sleep(2.5 if end is signal.SIGKILL else 0)
        serve = stack.child("serve")
        serve.send_signal(end)
        psutil.wait_procs([serve], 10)
        until(lambda: _answers(stack), 20, "the next one answers")
        assert budgets(stack, "dave")["output_tokens_per_day"] == used


def _answers(stack: Stack) -> bool:
    try:
        return ask(stack, bearer(ALICE), max_tokens=1)[0] == 200
    except (OSError, http.client.HTTPException):
        return False
