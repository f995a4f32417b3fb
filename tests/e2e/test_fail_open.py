"""Pools that take requests which nobody can decide on, and pools beside them that do not."""

import http.client
import json
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import openai
import psutil
import pytest

from tests.e2e.api_engine import api_engine
from tests.e2e.stack import Stack, configuration, fetch, until, up
from tests.extproc.forms import CONTENT_TYPE, form, part


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose control plane was there, and is no more."""
    with api_engine() as first, api_engine() as second, api_engine() as third:
        config = configuration([first, second], engine="none")
        pool = config["pools"][0]
        pool.update(name="open", models=["m-*", "exact"], fail_open=True)
        closed = {**pool, "name": "closed", "models": ["*", "m-dear-*"], "fail_open": False}
        config["pools"].append({**closed, "endpoints": [{"address": f"127.0.0.1:{third}"}]})
        config["limits"] = {"absence_seconds": 0}
        config["routes"] = [
            {"model": "m-routed-*", "min_prompt_tokens": 1_000, "pool": "closed"},
            {"headers": [{"name": "x-tier", "exact": "gold"}], "pool": "closed"},
            {"path": "/v1/score", "pool": "closed"},
        ]
        with up(tmp_path_factory.mktemp("open"), config) as running:
            status, answer = _ask(running, "m-1")
            assert status == 200, answer
            supervisor = psutil.Process(running.process.process.pid)
            control_plane = running.child("serve")
            supervisor.suspend()  # so that nobody starts it again
            control_plane.kill()
            try:
                yield running
            finally:
                supervisor.resume()


def _ask(stack: Stack, model: Any, path: str = "/v1/embeddings", **fields: Any) -> tuple[int, Any]:
    base = stack.clients.removesuffix("/v1")
    status, answer, _ = fetch(f"{base}{path}", {"model": model, "input": "hello", **fields})
    return status, answer


@pytest.mark.parametrize("model", ["m-1", "m-", "exact", "m-de\n", "m-\N{SNOWMAN}"])
def test_a_model_of_a_pool_that_fails_open_is_served(stack: Stack, model: str) -> None:
    status, answer = _ask(stack, model)

    assert (status, answer["path"], answer["method"]) == (200, "/v1/embeddings", "POST")


@pytest.mark.parametrize("model", ["other", "m-dear-1", "M-1", "exactly", "", None, 7, ["m-1"], {"m-1": 1}])
def test_no_other_pools_request_is_let_through(stack: Stack, model: Any) -> None:
    status, answer = _ask(stack, model)

    assert (status, answer["error"]["code"]) == (503, "service_unavailable")


def test_what_a_route_may_lead_elsewhere_is_not_let_through(stack: Stack) -> None:
    assert _ask(stack, "m-routed-1")[0] == 503
    assert _ask(stack, "m-routed")[0] == 200
    assert _ask(stack, "m-1", "/v1/score")[0] == 503
    assert _ask(stack, "m-1", "/score")[0] == 200
    body = b'{"model": "m-1"}'
    assert [_raw(stack, body, "text/plain", **tier) for tier in ({"x-tier": "gold"}, {"x-tier": "tin"})] == [503, 200]


def test_both_endpoints_take_their_share(stack: Stack) -> None:
    assert {_ask(stack, "m-1")[0] for _ in range(20)} == {200}
    admin = f"http://127.0.0.1:{stack.config['envoy']['admin_port']}"
    _, clusters, _ = fetch(f"{admin}/clusters")
    served = [
        int(line.rpartition("::")[2]) for line in clusters.splitlines() if "open::127" in line and "rq_total" in line
    ]
    assert len(served) == 2
    assert min(served) > 0


def test_streams_and_the_libraries_go_on(stack: Stack) -> None:
    with openai.OpenAI(base_url=stack.clients, api_key="unused", max_retries=0) as client:
        assert client.responses.create(model="m-1", input="hello").output_text == "hello there"
        events = list(client.responses.create(model="m-1", input="hello", stream=True))
    assert events[-1].type == "response.completed"
    assert _ask(stack, "m-1", "/v1/messages", max_tokens=1)[1]["type"] == "message"


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/admin", 503), ("/load_lora_adapter", 503), ("/v1/models", 503), ("/v1/..%2fadmin", 503)]
)
def test_a_path_that_is_no_apis_is_never_open(stack: Stack, path: str, status: int) -> None:
    assert _ask(stack, "m-1", path)[0] == status


def test_what_envoy_cannot_read_stays_closed(stack: Stack) -> None:
    url = f"{stack.clients}/embeddings"
    large = {"model": "m-1", "input": "x" * 1_100_000}
    assert fetch(url, large)[0] == 503
    assert _raw(stack, b'{"model": "m-1"', "application/json") == 503
    assert _raw(stack, b"", "application/json") == 503
    assert _raw(stack, b"[" * 100_000, "application/json") == 503
    assert _raw(stack, form(part("model", "m-1")), CONTENT_TYPE) == 503
    assert _raw(stack, b'{"model": "m-1"}', "") == 200
    assert _raw(stack, b'{"model": "m-1"}', "text/plain") == 200


def _raw(stack: Stack, body: bytes, content_type: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", stack.config["listener"]["port"], timeout=10)
    connection.request(
        "POST", "/v1/embeddings", body, ({"content-type": content_type} if content_type else {}) | headers
    )
    status = connection.getresponse().status
    connection.close()
    return status


def _statistics(stack: Stack) -> dict[str, float]:
    """Return what Envoy itself counts, by name and labels as Prometheus is told."""
    admin = f"http://127.0.0.1:{stack.config['envoy']['admin_port']}"
    _, page, _ = fetch(f"{admin}/stats/prometheus")
    lines = [line.rpartition(" ") for line in page.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


GONE_OPEN = 'envoy_vhost_route_upstream_rq_total{envoy_virtual_host="inference",envoy_route="open_open"}'
ALLOWED = 'envoy_http_ext_proc_failure_mode_allowed{envoy_http_conn_manager_prefix="inference"}'


def test_envoys_own_statistics_tell_of_it(stack: Stack) -> None:
    before = _statistics(stack)
    assert (_ask(stack, "m-1")[0], _ask(stack, "other")[0]) == (200, 503)
    after = _statistics(stack)
    assert after[GONE_OPEN] - before[GONE_OPEN] == 1
    assert after[ALLOWED] - before[ALLOWED] == 2


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose control plane is there, with one pool that fails open and one that does not."""
    with api_engine() as first, api_engine() as second:
        config = configuration([first], engine="none")
        config["pools"][0].update(name="open", models=["m"], fail_open=True)
        closed = {**config["pools"][0], "name": "closed", "models": ["n"], "fail_open": False}
        config["pools"].append({**closed, "endpoints": [{"address": f"127.0.0.1:{second}"}]})
        config["limits"] = {"absence_seconds": 0, "decision_timeout_seconds": 1.0}
        with up(tmp_path_factory.mktemp("pair"), config) as running:
            yield running


def test_while_all_is_well_envoy_reads_no_body(pair: Stack) -> None:
    for model in ("m", "n", "nothing"):
        for kind in ("application/json", "", "text/plain", "x-off/x-off"):
            expected = 404 if model == "nothing" else 200
            assert _raw(pair, json.dumps({"model": model, "input": "a"}).encode(), kind) == expected
    read = {name: value for name, value in _statistics(pair).items() if name.startswith("envoy_json_to_metadata_rq")}
    assert {name for name, value in read.items() if value} == {"envoy_json_to_metadata_rq_mismatched_content_type{}"}
    assert pair.total("tidegate_failed_open_total") == 0


def test_a_hung_control_plane_delays_what_is_open_and_is_told_of_it_later(pair: Stack) -> None:
    control_plane = pair.child("serve")
    control_plane.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert _ask(pair, "m")[0] == 200
        assert time.monotonic() - began < 5
        assert _ask(pair, "n")[0] in {503, 504}
    finally:
        control_plane.send_signal(signal.SIGCONT)
    until(lambda: pair.total("tidegate_failed_open_total", pool="open") >= 1, 15, "it is counted")
    assert pair.total("tidegate_requests_total", pool="open", model="m", outcome="ok") >= 1
    until(lambda: _ask(pair, "n")[0] == 200, 15, "it decides again")


def test_a_killed_control_plane_costs_an_open_pool_nothing(pair: Stack) -> None:
    statuses: dict[str, list[int]] = {"m": [], "n": []}
    stop = threading.Event()

    def ask(model: str) -> None:
        while not stop.is_set():
            statuses[model].append(_ask(pair, model)[0])
            time.sleep(0.02)

    threads = [threading.Thread(target=ask, args=(model,)) for model in ("m", "m", "n")]
    for thread in threads:
        thread.start()
    until(lambda: len(statuses["m"]) > 20, 20, "requests flow")
    pair.child("serve").send_signal(signal.SIGKILL)
    asked = len(statuses["m"])
    until(lambda: len(statuses["m"]) > asked + 50, 20, "they go on")
    until(lambda: _ask(pair, "n")[0] == 200, 60, "it decides again")
    stop.set()
    for thread in threads:
        thread.join(30)
    assert set(statuses["m"]) == {200}
    assert set(statuses["n"]) == {200, 503}, "the other pool fails closed"
