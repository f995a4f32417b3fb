"""Routes through a real Envoy: by path, header, model and tokens, with names and paths rewritten on the way."""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from tests.e2e.stack import MODEL, Stack, configuration, engines, fetch, until, up


class Seen(NamedTuple):
    """A request as the engine saw it."""

    pool: str
    path: str
    body: bytes
    headers: dict[str, str]


@contextlib.contextmanager
def recording(pool: str, seen: list[Seen]) -> Iterator[int]:
    """Run an engine that remembers what it is sent, and streams where it is asked to; yield its port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            seen.append(Seen(pool, self.path, body, {name.lower(): value for name, value in self.headers.items()}))
            streamed = b'"stream": true' in body or b'"stream":true' in body
            answer = json.dumps({"model": pool, "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}})
            sent = f"data: {answer}\n\ndata: [DONE]\n\n".encode() if streamed else answer.encode()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if streamed else "application/json")
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Gateway(NamedTuple):
    """A stack, and what its engines saw."""

    stack: Stack
    seen: list[Seen]

    def send(self, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
        """Send one POST; return the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.stack.config["listener"]["port"], timeout=20)
        self.seen.clear()
        with contextlib.closing(connection):
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("POST", path, body, {"content-type": "application/json", **names})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def went(self, path: str, body: bytes, **headers: str) -> Seen:
        """Send one POST that is served; return what the engine saw."""
        status, answer = self.send(path, body, **headers)
        assert status == 200, answer
        (seen,) = self.seen
        assert json.loads(answer.removeprefix(b"data: ").partition(b"\n")[0])["model"] == seen.pool
        return seen


ROUTES: list[dict[str, Any]] = [
    {"path": "/api/v1/chat", "api": "chat_completions", "model": "assistant", "pool": "chat", "rewrite_model": "big"},
    {"path": "/api/v1/process", "api": "completions", "pool": "batch"},
    {"path": "/raw/*", "api": "completions", "pool": "batch", "rewrite_path": "/engine/process"},
    {"path": "/claude", "api": "messages", "pool": "chat"},
    {"headers": [{"name": "x-tier", "exact": "batch"}], "pool": "batch"},
    {"headers": [{"name": "x-session-kind", "present": True}], "pool": "chat"},
    {"model": "long-*", "min_prompt_tokens": 1_000, "pool": "chat", "rewrite_model": "long"},
    {"model": "fast", "pool": "chat", "rewrite_model": "small"},
    {"model": "shared", "split": [{"pool": "chat", "rewrite_model": "new"}, {"pool": "batch"}]},
]


@pytest.fixture(scope="module", params=[1, 2], ids=["one exchange", "two exchanges"])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    seen: list[Seen] = []
    with contextlib.ExitStack() as running:
        ports = {pool: running.enter_context(recording(pool, seen)) for pool in ("default", "chat", "batch")}
        config = configuration([ports["default"]], engine="none")
        pool = config["pools"][0]
        pool["name"] = "default"
        for name in ("chat", "batch"):
            config["pools"].append(
                {**pool, "name": name, "models": [], "endpoints": [{"address": f"127.0.0.1:{ports[name]}"}]}
            )
        config["pools"][1] |= {"usage": "stream"}
        config["routes"] = ROUTES
        config["control"]["ext_proc_exchanges"] = request.param
        yield Gateway(running.enter_context(up(tmp_path_factory.mktemp("routes"), config)), seen)


def chat(model: str, content: str = "hello", more: str = "") -> bytes:
    return f'{{"model" : "{model}","messages":[{{"role":"user","content":"{content}"}}],"n":1.0{more}}}'.encode()


CHAT = "/v1/chat/completions"


def test_a_request_without_a_route_goes_by_its_model_untouched(gateway: Gateway) -> None:
    seen = gateway.went(f"{CHAT}?a=1", body := chat("anything"))
    assert (seen.pool, seen.path, seen.body) == ("default", f"{CHAT}?a=1", body)


def test_a_path_of_ones_own_speaks_an_api_and_the_model_is_renamed(gateway: Gateway) -> None:
    seen = gateway.went("/api/v1/chat?a=%2Fb", body := chat("assistant"))
    assert (seen.pool, seen.path) == ("chat", f"{CHAT}?a=%2Fb")
    assert seen.body == body.replace(b'"assistant"', b'"big"')
    assert seen.headers["content-length"] == str(len(seen.body))


def test_another_model_on_that_path_goes_by_its_name_to_the_apis_own_path(gateway: Gateway) -> None:
    seen = gateway.went("/api/v1/chat", body := chat("other"))
    assert (seen.pool, seen.path, seen.body) == ("default", CHAT, body)


def test_each_side_of_a_split_has_its_own_name_for_the_model(gateway: Gateway) -> None:
    seen = [gateway.went(CHAT, chat("shared")) for _ in range(10)]
    models = [(one.pool, json.loads(one.body)["model"]) for one in seen]
    assert sorted(set(models)) == [("batch", "shared"), ("chat", "new")]
    assert 4 <= models.count(("chat", "new")) <= 6
    assert all(one.headers["content-length"] == str(len(one.body)) for one in seen)


def test_two_paths_are_two_pools(gateway: Gateway) -> None:
    seen = gateway.went("/api/v1/process", body := b'{"model":"m","prompt":"x"}')
    assert (seen.pool, seen.path, seen.body) == ("batch", "/v1/completions", body)
    assert gateway.went("/raw/any/thing?x", body)[:2] == ("batch", "/engine/process?x")
    status, answer = gateway.send("/api/v1/other", body)
    assert (status, json.loads(answer)["error"]["code"], gateway.seen) == (404, "unknown_url", [])


def test_errors_of_envoys_own_have_the_form_of_the_api_of_the_path(gateway: Gateway) -> None:
    for path, error in (("/claude?x", {"type": "error"}), ("/api/v1/process", {})):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.stack.config["listener"]["port"], timeout=20)
        with contextlib.closing(connection):
            connection.putrequest("POST", path)
            connection.putheader("content-length", "50000000")
            connection.endheaders()
            answer = connection.getresponse()
            said = json.loads(answer.read())
        assert answer.status == 413
        assert said["error"]["type"] == ("request_too_large" if error else "invalid_request_error")
        assert {key: value for key, value in said.items() if key != "error"} == error


def test_a_header_leads_to_a_pool_and_nothing_else_does(gateway: Gateway) -> None:
    assert gateway.went(CHAT, chat("m"), x_tier="batch").pool == "batch"
    assert gateway.went(CHAT, chat("m"), x_tier="Batch").pool == "default"
    assert gateway.went(CHAT, chat("m"), x_session_kind="").pool == "chat"
    assert (
        gateway.went(CHAT, chat("m"), x_tenant_id="batch", x_gateway_destination_endpoint="1.2.3.4:5").pool == "default"
    )


def test_long_prompts_go_elsewhere_by_another_name(gateway: Gateway) -> None:
    short, long = chat("long-1", "word " * 100), chat("long-1", "word " * 2_000)
    seen = gateway.went(CHAT, short)
    assert (seen.pool, seen.body) == ("default", short)
    seen = gateway.went(CHAT, long)
    assert (seen.pool, seen.body) == ("chat", long.replace(b"long-1", b"long"))


@pytest.mark.parametrize("size", [10, 100_000, 3_000_000])
def test_a_stream_is_renamed_and_asked_for_its_usage(gateway: Gateway, size: int) -> None:
    body = chat("fast", "x" * size, ', "stream": true')
    status, answer = gateway.send(CHAT, body)
    (seen,) = gateway.seen
    assert status == 200
    assert seen.body == b'{"stream_options":{"include_usage":true},' + body.replace(b'"fast"', b'"small"')[1:]
    assert seen.headers["content-length"] == str(len(seen.body))
    assert answer.endswith(b"data: [DONE]\n\n")


def test_a_body_in_chunks_is_renamed(gateway: Gateway) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.stack.config["listener"]["port"], timeout=20)
    gateway.seen.clear()
    with contextlib.closing(connection):
        pieces = (chat("fast")[at : at + 20] for at in range(0, len(chat("fast")), 20))
        connection.request("POST", CHAT, pieces, {"content-type": "application/json"}, encode_chunked=True)
        assert connection.getresponse().status == 200
    (seen,) = gateway.seen
    assert seen.pool == "chat"


def test_metrics_tell_the_name_that_the_engine_knows(gateway: Gateway) -> None:
    gateway.went(CHAT, chat("fast"))
    gateway.stack.settle()
    assert gateway.stack.total("tidegate_requests_total", pool="chat", model="small") >= 1
    assert gateway.stack.total("tidegate_requests_total", model="fast") == 0


def test_the_list_of_models_has_what_routes_lead_anywhere(gateway: Gateway) -> None:
    _, listed, _ = fetch(f"{gateway.stack.clients}/models")
    assert [model["id"] for model in listed["data"]] == ["fast", "shared"]


def test_routes_follow_the_file_without_a_lost_request(gateway: Gateway) -> None:
    config = gateway.stack.config
    before = config["routes"]
    config["routes"] = [*before, {"path": "/new", "api": "completions", "pool": "batch"}]
    gateway.stack.write_config()
    body = b'{"model":"m","prompt":"x"}'
    until(lambda: gateway.send("/new", body)[0] != 404, 20, "the route is followed")
    for _ in range(20):
        assert gateway.went("/new", body)[:2] == ("batch", "/v1/completions")
    config["routes"] = before
    gateway.stack.write_config()
    deadline = time.monotonic() + 20
    while (status := gateway.send("/new", body)[0]) != 404:
        assert (status, gateway.seen[-1].path) == (200, "/v1/completions")
        assert time.monotonic() < deadline


@pytest.fixture(scope="module")
def tiers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two classes of traffic for one model, each with an engine that takes two requests at a time."""
    folder = tmp_path_factory.mktemp("tiers")
    with engines(folder, "h100", "h100", options=("--max-num-seqs", "2")) as (one, other):
        config = configuration([one])
        pool = config["pools"][0]
        config["pools"].append(
            {**pool, "name": "batch", "models": [], "endpoints": [{"address": f"127.0.0.1:{other}"}]}
        )
        config["routes"] = [{"path": "/api/v1/process", "api": "chat_completions", "pool": "batch"}]
        with up(folder, config) as running:
            yield running


def test_a_surge_in_one_pool_touches_no_other(tiers: Stack) -> None:
    base = tiers.clients.removesuffix("/v1")
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
    ending = threading.Event()

    def surge(_: int) -> list[tuple[int, float]]:
        answers = []
        while not ending.is_set():
            began = time.monotonic()
            status = fetch(f"{base}/api/v1/process", {**body, "max_tokens": 150}, timeout=90)[0]
            answers.append((status, time.monotonic() - began))
        return answers

    def quiet() -> list[float]:
        took = []
        for _ in range(15):
            began = time.monotonic()
            assert tiers.ask()[0] == 200
            took.append(time.monotonic() - began)
        return sorted(took)

    alone = quiet()
    with ThreadPoolExecutor(24) as clients:
        surging = [clients.submit(surge, number) for number in range(24)]
        try:
            until(lambda: tiers.total("tidegate_inflight_requests", pool="batch") >= 20, 20, "the surge is there")
            beside = quiet()
            inflight = tiers.total("tidegate_inflight_requests", pool="batch")
        finally:
            ending.set()
    answers = [answer for done in surging for answer in done.result()]
    assert {status for status, _ in answers} == {200}
    assert inflight >= 20
    behind = sorted(took for _, took in answers)
    assert median(beside) < min(median(behind) / 4, 3 * median(alone) + 0.2), (alone, beside, behind)
    assert tiers.total("tidegate_picks_total", pool="default") == 30
    assert tiers.total("tidegate_picks_total", pool="batch") == len(answers)
    stats = envoy_stats(tiers)
    for pool, sent in (("default", 30), ("batch", len(answers))):
        assert stats[f"cluster.{pool}.upstream_rq_total"] == sent
        assert stats[f"cluster.{pool}.upstream_rq_pending_overflow"] == 0
        assert stats[f"cluster.{pool}.circuit_breakers.default.rq_open"] == 0


def median(took: list[float]) -> float:
    """Return the middle of what is sorted."""
    return took[len(took) // 2]


def envoy_stats(stack: Stack) -> dict[str, int]:
    """Return Envoy's counters and gauges."""
    _, text, _ = fetch(f"http://127.0.0.1:{stack.config['envoy']['admin_port']}/stats")
    pairs = (line.split(": ") for line in text.splitlines() if line.count(": ") == 1)
    return {name: int(value) for name, value in pairs if value.isdigit()}
