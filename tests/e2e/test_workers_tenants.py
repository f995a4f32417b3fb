"""Two workers on one budget, with a real Envoy: what they let in together is what one process would."""

import contextlib
import http.client
import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.stack import MODEL, Stack, engines, fetch, until
from tests.e2e.test_tenants import ask, bearer, budgets
from tests.e2e.workers import Workers, running, with_workers
from tidegate.runtime.callers import hashed

ALICE, BOB, CAROL = (f"sk-test-{name}-{'0' * 32}" for name in ("alice", "bob", "carol"))
TENANTS: dict[str, Any] = {
    "tenants": [
        {"name": "alice", "limits": {"requests_per_day": 25}},
        {"name": "bob", "limits": {"requests_in_flight": 3}},
        {"name": "carol", "limits": {"output_tokens_per_day": 10_000, "requests_in_flight": 8}},
    ],
    "keys": [
        {"name": name, "tenant": name, "hash": hashed(key)}
        for name, key in (("alice", ALICE), ("bob", BOB), ("carol", CAROL))
    ],
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Workers]]:
    folder = tmp_path_factory.mktemp("tenants")
    with engines(folder, "h100") as ports, running(folder, {**with_workers(ports), **TENANTS}) as stack_and_workers:
        yield stack_and_workers


def asked_for(stack: Stack) -> list[int]:
    """Return how many decisions each worker was asked for, by Envoy's count of its connections' requests."""
    page = fetch(f"http://127.0.0.1:{stack.config['envoy']['admin_port']}/clusters?format=json")[1]
    (cluster,) = [one for one in page["cluster_statuses"] if one["name"] == "tidegate_ext_proc"]
    return [
        int(next(stat.get("value", 0) for stat in host["stats"] if stat["name"] == "rq_total"))
        for host in cluster["host_statuses"]
    ]


def test_two_workers_let_in_exactly_as_many_as_one_budget_holds(both: tuple[Stack, Workers]) -> None:
    stack, _ = both
    before = asked_for(stack)
    with ThreadPoolExecutor(10) as clients:
        answers = list(clients.map(lambda _: ask(stack, bearer(ALICE), max_tokens=1), range(60)))
    assert Counter(status for status, _, _ in answers) == {200: 25, 429: 35}
    assert all(after - earlier >= 20 for earlier, after in zip(before, asked_for(stack), strict=True)), (
        "both were asked"
    )
    refused = next(answer for status, answer, _ in answers if status == 429)
    assert refused["error"]["param"] == "requests_per_day"
    assert budgets(stack, "alice") == {"requests_per_day": 0}
    assert stack.total("tidegate_tenant_requests_total", tenant="alice") == 25
    assert stack.total("tidegate_tenant_refusals_total", tenant="alice") == 35


def test_a_wrong_key_is_refused_by_whichever_worker_and_counted(both: tuple[Stack, Workers]) -> None:
    stack, _ = both
    assert {ask(stack, bearer("sk-nobody"))[0] for _ in range(6)} == {401}
    until(lambda: stack.total("tidegate_unauthenticated_total", why="wrong") == 6, 5, "all are counted")


def test_three_at_a_time_are_three_over_both_and_come_back(both: tuple[Stack, Workers]) -> None:
    stack, _ = both
    with ThreadPoolExecutor(12) as clients:
        answers = list(clients.map(lambda _: ask(stack, bearer(BOB), max_tokens=300, ignore_eos=True), range(12)))
    assert Counter(status for status, _, _ in answers) == {200: 3, 429: 9}
    until(lambda: budgets(stack, "bob") == {"requests_in_flight": 3}, 5, "all came back")


def test_what_was_reserved_is_settled_by_what_was_used(both: tuple[Stack, Workers]) -> None:
    stack, _ = both
    used = 0
    for _ in range(4):
        status, answer, _ = ask(stack, bearer(CAROL), max_tokens=500)
        assert status == 200
        used += answer["usage"]["completion_tokens"]
    until(lambda: budgets(stack, "carol")["output_tokens_per_day"] == 10_000 - used, 5, "the usage is settled")


def test_clients_that_leave_at_any_moment_leave_nothing_held(both: tuple[Stack, Workers]) -> None:
    stack, _ = both
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 500}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    whole = f"{head}x-api-key: {CAROL}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    for number in range(120):
        with socket.create_connection(("127.0.0.1", stack.config["listener"]["port"]), 10) as client:
            client.sendall(whole)
            time.sleep(number % 12 / 4000)  # up to 3 ms, in which a request is asked about, decided and sent on
    until(lambda: fetch(f"{stack.admin}/tenants")[1]["requests_held"] == 0, 10, "all came back")
    until(lambda: not stack.inflight(), 10, "nothing is in flight")
    assert budgets(stack, "carol")["requests_in_flight"] == 8


def test_a_killed_worker_gives_back_what_it_held_and_streams_go_on(both: tuple[Stack, Workers]) -> None:
    stack, workers = both
    until(lambda: budgets(stack, "bob") == {"requests_in_flight": 3}, 5, "nothing is in flight")
    victim = workers.process(0)
    with streaming(stack, BOB) as answer:
        assert budgets(stack, "bob") == {"requests_in_flight": 2}
        with ThreadPoolExecutor(6) as clients:
            going = [clients.submit(ask, stack, bearer(CAROL), max_tokens=4) for _ in range(20)]
            time.sleep(0.02)
            victim.kill()
            statuses = [one.result()[0] for one in going]
        assert set(statuses) <= {200, 429, 503}
        assert budgets(stack, "bob") == {"requests_in_flight": 2}, "what was delivered is still in flight"
        assert answer.read().endswith(b"data: [DONE]\n\n")
    until(lambda: budgets(stack, "bob") == {"requests_in_flight": 3}, 5, "the stream gave back")
    until(lambda: budgets(stack, "carol")["requests_in_flight"] == 8, 10, "what the worker held came back")
    workers.ready()
    assert ask(stack, bearer(BOB))[0] == 200


@contextlib.contextmanager
def streaming(stack: Stack, key: str) -> Iterator[http.client.HTTPResponse]:
    """Have an answer stream for about three seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.config["listener"]["port"], timeout=30)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "tell"}], "max_tokens": 400, "ignore_eos": True}
    headers = {"content-type": "application/json", **bearer(key)}
    with contextlib.closing(connection):
        connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True}), headers)
        answer = connection.getresponse()
        assert answer.status == 200
        yield answer


def test_tenants_can_be_taken_away_and_brought_back(both: tuple[Stack, Workers]) -> None:
    stack, _ = both
    for name in TENANTS:
        del stack.config[name]
    stack.write_config()
    until(lambda: {ask(stack, {})[0] for _ in range(4)} == {200}, 10, "nobody is asked by either")
    stack.config.update(TENANTS)
    stack.write_config()
    until(lambda: {ask(stack, {})[0] for _ in range(4)} == {401}, 10, "everybody is asked by both")
    assert ask(stack, bearer(BOB))[0] == 200
