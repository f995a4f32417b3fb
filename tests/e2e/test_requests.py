"""Requests through a real Envoy, decided by Tidegate."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.stack import MODEL, Stack, configuration, engines, fetch, until, up


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("requests")
    with engines(folder, "h100", "h100") as ports, up(folder, configuration(ports)) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=stack.clients, api_key="unused", max_retries=0) as client:
        yield client


def test_the_openai_sdk_gets_a_chat_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=12, extra_body={"ignore_eos": True}
    )
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12


def test_the_openai_sdk_streams_a_chat_answer_token_by_token(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=12,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    chunks = list(stream)
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert len(texts) == 12
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12


def test_the_openai_sdk_gets_completions_and_embeddings(client: openai.OpenAI) -> None:
    completion = client.completions.create(
        model=MODEL, prompt="once upon", max_tokens=5, extra_body={"ignore_eos": True}
    )
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 5
    embedding = client.embeddings.create(model=MODEL, input=["one", "two"])
    assert len(embedding.data) == 2


def test_usage_and_time_to_first_token_reach_the_metrics_for_json_and_sse_alike(stack: Stack) -> None:
    def seen(name: str) -> float:
        return stack.total(f"tidegate_{name}", pool="default")

    stack.settle()
    before = {name: seen(name) for name in ("prompt_tokens_total", "completion_tokens_total")}
    before_ttft = seen("time_to_first_token_seconds_count")
    _, answer, _ = stack.ask("count me", max_tokens=10, ignore_eos=True)
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "count me"}],
        "max_tokens": 20,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    _, text, _ = fetch(f"{stack.clients}/chat/completions", body)
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    prompt = answer["usage"]["prompt_tokens"] + events[-1]["usage"]["prompt_tokens"]
    until(
        lambda: seen("completion_tokens_total") - before["completion_tokens_total"] == 30,
        5,
        "30 completion tokens are counted",
    )
    assert seen("prompt_tokens_total") - before["prompt_tokens_total"] == prompt
    assert seen("time_to_first_token_seconds_count") - before_ttft == 1, "a JSON answer has no first token"
    assert seen("time_per_output_token_seconds_count") >= 1
    assert seen("request_duration_seconds_count") >= 2


def test_a_long_answer_costs_ext_proc_as_many_messages_as_a_short_one(stack: Stack) -> None:
    admin = (
        f"http://127.0.0.1:{stack.config['envoy']['admin_port']}/stats?filter=ext_proc.stream_msgs_received&format=json"
    )

    def messages(tokens: int) -> int:
        def count() -> int:
            _, stats, _ = fetch(admin)
            return sum(stat["value"] for stat in stats["stats"])

        before = count()
        status, _, _ = stack.ask(max_tokens=tokens, stream=True, ignore_eos=True)
        assert status == 200
        return count() - before

    assert messages(2) == messages(200) == 1


def test_a_large_prompt_reaches_the_engine(stack: Stack) -> None:
    status, answer, _ = stack.ask("x" * 3_000_000)
    assert status == 400, "3 MB are more tokens than the model's context"
    assert answer["error"]["param"] == "input_tokens", "and it is the engine that says so"


def test_a_body_over_the_limit_is_a_clear_413(stack: Stack) -> None:
    status, answer, _ = stack.ask("x" * 34_000_000)
    assert status == 413
    assert answer["error"]["code"] == "request_too_large"
    assert answer["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"messages": []}, 400, "model"),
        ({"model": MODEL}, 400, "messages"),
        ({"model": MODEL, "messages": "hello"}, 400, "messages"),
        ({"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": -1}, 400, "max_tokens"),
    ],
)
def test_a_bad_body_is_refused_with_the_field_that_is_wrong(
    stack: Stack, body: dict[str, object], status: int, param: str
) -> None:
    got, answer, _ = fetch(f"{stack.clients}/chat/completions", body)
    assert got == status
    assert answer["error"]["param"] == param
    assert answer["error"]["type"] == "invalid_request_error"


def test_an_unknown_path_is_refused(stack: Stack) -> None:
    status, answer, _ = fetch(f"{stack.clients}/nothing", {"model": MODEL})
    assert status == 404
    assert answer["error"]["message"]


def test_a_client_cannot_choose_the_endpoint(stack: Stack) -> None:
    with openai.OpenAI(base_url=stack.clients, api_key="unused", max_retries=0) as client:
        named = "127.0.0.1:1"
        for _ in range(4):
            answer = client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "hello"}],
                max_tokens=2,
                extra_headers={"x-gateway-destination-endpoint": named, "x-tidegate-pool": "other"},
            )
            assert answer.choices


def test_a_prompt_is_in_no_log_whatever_becomes_of_its_request(stack: Stack) -> None:
    secret = "correct-horse-battery-staple"
    bodies: list[dict[str, Any]] = [
        {"model": MODEL, "messages": [{"role": "user", "content": secret}], "max_tokens": 2},
        {"model": MODEL, "messages": [{"role": "user", "content": secret * 30_000}]},
        {"model": MODEL, "messages": [{"role": "user", "content": secret}], "max_tokens": secret},
        {"model": MODEL, "messages": secret},
        {"messages": [{"role": "user", "content": secret}]},
    ]
    assert [fetch(f"{stack.clients}/chat/completions", body)[0] for body in bodies] == [200, 400, 400, 400, 400]
    stack.settle()
    assert "ready" in stack.log()
    assert secret not in stack.log()
    assert secret not in fetch(f"{stack.admin}/metrics")[1]


def test_after_two_thousand_mixed_requests_nothing_is_in_flight(stack: Stack) -> None:
    stack.settle()
    before = stack.total("tidegate_requests_total")

    def one(number: int) -> int:
        match number % 8:
            case 0:
                return fetch(f"{stack.clients}/chat/completions", {"model": MODEL})[0]
            case 1:
                return fetch(f"{stack.clients}/nothing", {})[0]
            case 2:
                return fetch(f"{stack.clients}/embeddings", {"model": MODEL, "input": "a"})[0]
            case 3 | 4:
                return stack.ask(stream=True, max_tokens=4)[0]
            case _:
                return stack.ask("word " * (number % 50), max_tokens=1 + number % 6)[0]

    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(one, range(2000)))
    assert {status: statuses.count(status) for status in set(statuses)} == {200: 1500, 400: 250, 404: 250}
    until(lambda: stack.inflight() == {}, 5, "every in-flight gauge is zero")
    until(lambda: stack.total("tidegate_requests_total") - before == 2000, 5, "every request is counted once")
    assert stack.total("tidegate_reservations_expired_total") == 0


FED_BY_TROUBLE = {
    *("failed_open_total", "retries_total", "failovers_total", "xds_nacks_total", "config_reloads_total"),
    *("reservations_expired_total", "access_log_malformed_total", "answers_read_in_part_total"),
    *("reasoning_tokens_total", "failed_attempts_total", "quarantines_total", "endpoint_health_transitions_total"),
    "xds_refused_streams_total",
}
"""Counters that a fleet in good health, of engines that do not reason, leaves at zero or does not have yet."""
FED_BY_CONFIGURATION = {
    *("discovery_endpoints", "discovery_refused_endpoints", "discovery_age_seconds", "discovery_errors_total"),
    *("discovery_stage", "kv_events_total", "limit", "limit_left", "tenant_requests_total", "tenant_tokens_total"),
    *("tenant_refusals_total", "unauthenticated_total", "endpoint_vram_room_tokens", "engine_check_duration_seconds"),
    *("queue_entered_total", "queue_left_total", "queue_requests", "queue_wait_seconds"),
    *("queue_estimate_error_seconds", "rollout_changes_total", "rollout_phase", "rollout_share"),
    *("certificate_refused", "certificate_expiry_timestamp_seconds"),
}
"""What is counted of sources of endpoints, of engines that tell what they cache, of tenants, GPU agents, checks that
ask, queues and rollouts: here are none."""


def test_every_family_on_the_metrics_page_is_fed(stack: Stack) -> None:
    for _ in range(3):  # of three, one finds an earlier one in its engine's prefix cache
        body = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
        assert stack.ask("word " * 200, max_tokens=4, **body)[0] == 200
    assert stack.ask(stream=True)[0] == 200  # without usage
    assert stack.ask(model=None)[0] == 400
    stack.settle()
    _, page, _ = fetch(f"{stack.admin}/metrics")
    families = list(text_string_to_metric_families(page))
    silent = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in families
        if not family.samples or (family.type != "gauge" and not any(sample.value for sample in family.samples))
    }
    assert silent == {f"tidegate_{name}" for name in FED_BY_TROUBLE | FED_BY_CONFIGURATION}
    assert len(families) > 40
