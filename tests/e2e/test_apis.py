"""Every API that is served, through a real Envoy, by the clients that people use."""

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.e2e.api_engine import api_engine
from tests.e2e.stack import Stack, configuration, fetch, until, up


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with api_engine() as first, api_engine() as second:
        config = configuration([first], engine="none")
        config["pools"][0]["models"] = ["m", "org/large", "claude-*"]
        config["pools"].append({**config["pools"][0], "name": "other", "models": ["n"]})
        config["pools"][1]["endpoints"] = [{"address": f"127.0.0.1:{second}"}]
        config["unknown_paths"] = {"pool": "other"}
        with up(tmp_path_factory.mktemp("apis"), config) as running:
            yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=stack.clients, api_key="unused", max_retries=0) as client:
        yield client


def test_the_models_are_those_of_all_pools(client: openai.OpenAI, stack: Stack) -> None:
    before = stack.total("tidegate_requests_total", api="models", code="200", outcome="ok")
    models = client.models.list().data
    assert [model.id for model in models] == ["m", "org/large", "n"]
    assert client.models.retrieve("n") == models[2]
    assert fetch(f"{stack.clients}/models/org/large")[1]["id"] == "org/large"
    assert client.models.retrieve("org/large") == models[1], "which the SDK asks for with an escaped slash"
    until(
        lambda: stack.total("tidegate_requests_total", api="models", code="200", outcome="ok") - before == 4,
        5,
        "four requests that went well are counted",
    )


def test_an_unknown_model_is_not_found(client: openai.OpenAI, stack: Stack) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("nothing")
    assert caught.value.code == "model_not_found"
    until(
        lambda: stack.total("tidegate_requests_total", api="models", outcome="refused") == 1, 5, "it counts as refused"
    )


@pytest.fixture
def claude(stack: Stack) -> Iterator[anthropic.Anthropic]:
    base = stack.clients.removesuffix("/v1")
    with anthropic.Anthropic(base_url=base, api_key="unused", max_retries=0) as client:
        yield client


class Counted:
    """The tokens that the metrics have counted since this was made."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        stack.settle()
        self.before = self._now()

    def _now(self) -> list[float]:
        names = ("prompt_tokens_total", "completion_tokens_total", "cached_prompt_tokens_total", "usage_unknown_total")
        return [self.stack.total(f"tidegate_{name}", pool="default") for name in names]

    def __call__(self) -> list[float]:
        """Return prompt, output and cached tokens, and how many answers told none."""
        self.stack.settle()
        return [now - before for now, before in zip(self._now(), self.before, strict=True)]


def test_the_openai_sdk_gets_a_response_whose_usage_is_counted(client: openai.OpenAI, stack: Stack) -> None:
    counted = Counted(stack)
    answer = client.responses.create(model="m", input="hello", max_output_tokens=8)
    assert answer.output_text == "hello there"
    assert counted() == [9, 4, 5, 0]
    assert stack.total("tidegate_requests_total", api="responses", outcome="ok") == 1


@pytest.mark.parametrize(("limit", "last"), [(None, "response.completed"), (8, "response.incomplete")])
def test_the_openai_sdk_streams_a_response_whose_usage_is_counted(
    client: openai.OpenAI, stack: Stack, limit: int | None, last: str
) -> None:
    counted = Counted(stack)
    asked: Any = {} if limit is None else {"max_output_tokens": limit}
    events = list(
        client.responses.create(model="m", input=[{"role": "user", "content": "hello"}], stream=True, **asked)
    )
    assert events[-1].type == last
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "hello there"
    assert counted() == [9, 4, 5, 0]


def test_stored_responses_are_refused_with_a_reason(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="not stored") as caught:
        client.responses.retrieve("resp_1")
    assert caught.value.code == "response_not_found"
    with pytest.raises(openai.NotFoundError):
        client.responses.cancel("resp_1")
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.create(model="m", input="hello", background=True)


@pytest.mark.parametrize("path", ["/tokenize", "/v1/rerank", "/score", "/pooling", "/generate"])
def test_the_engines_own_apis_reach_an_engine_by_their_model(stack: Stack, path: str) -> None:
    counted = Counted(stack)
    base = stack.clients.removesuffix("/v1")
    fields = {"query": "a", "documents": ["b"], "text_1": "a", "text_2": "b", "input": "a", "prompt": "a"}
    status, answer, _ = fetch(f"{base}{path}", {"model": "m", **fields})
    assert (status, answer["path"]) == (200, path)
    status, answer, _ = fetch(f"{base}{path}", fields)
    assert (status, answer["error"]["param"]) == (400, "model"), "there are two pools"
    assert counted() == [0, 0, 0, 0]


def test_unknown_paths_reach_the_pool_that_takes_them(stack: Stack) -> None:
    before = stack.total("tidegate_requests_total", pool="other", api="unknown_path", outcome="ok")
    base = stack.clients.removesuffix("/v1")
    assert fetch(f"{base}/version?a=b")[1] == {"path": "/version?a=b", "method": "GET", "size": 0}
    status, answer, _ = fetch(f"{stack.clients}/videos", {"input": "x" * 1000})
    assert (status, answer["path"], answer["method"]) == (200, "/v1/videos", "POST")
    stack.settle()
    assert stack.total("tidegate_requests_total", pool="other", api="unknown_path", outcome="ok") - before == 2
    assert stack.total("tidegate_usage_unknown_total", pool="other") == 0


ASKED: list[anthropic.types.MessageParam] = [{"role": "user", "content": "hello"}]


def test_the_anthropic_sdk_gets_a_message_whose_usage_is_counted(claude: anthropic.Anthropic, stack: Stack) -> None:
    counted = Counted(stack)
    answer = claude.messages.create(model="claude-x", max_tokens=8, system="be brief", messages=ASKED)
    assert answer.content[0].type == "text"
    assert answer.content[0].text == "hello there"
    assert counted() == [16, 4, 5, 0], "Anthropic's input_tokens are without what the cache had or took"
    assert stack.total("tidegate_requests_total", api="messages", outcome="ok") == 1


def test_the_anthropic_sdk_streams_a_message_whose_usage_is_counted(claude: anthropic.Anthropic, stack: Stack) -> None:
    counted = Counted(stack)
    with claude.messages.stream(model="m", max_tokens=8, messages=ASKED) as stream:
        assert "".join(stream.text_stream) == "hello there"
    assert counted() == [16, 4, 5, 0]


def test_the_anthropic_sdk_counts_tokens_at_an_engine(claude: anthropic.Anthropic, stack: Stack) -> None:
    counted = Counted(stack)
    assert claude.messages.count_tokens(model="m", messages=ASKED).input_tokens == 9
    assert counted() == [0, 0, 0, 0]


def test_errors_on_anthropics_paths_have_its_form(claude: anthropic.Anthropic, stack: Stack) -> None:
    with pytest.raises(anthropic.NotFoundError) as unknown:
        claude.messages.create(model="nothing", max_tokens=8, messages=ASKED)
    assert unknown.value.body == {
        "type": "error",
        "error": {"type": "not_found_error", "message": 'The model "nothing" does not exist.'},
    }
    status, answer, _ = fetch(f"{stack.clients}/messages", {"model": "m", "messages": ASKED})
    assert (status, answer["error"]) == (400, {"type": "invalid_request_error", "message": "'max_tokens' is missing."})
    status, answer, headers = fetch(f"{stack.clients}/messages")
    assert (status, answer["type"], headers["allow"]) == (405, "error", "POST")


def test_what_envoy_answers_on_anthropics_paths_has_its_form_too(stack: Stack) -> None:
    large = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x" * 34_000_000}]}
    status, answer, _ = fetch(f"{stack.clients}/messages?beta=true", large)
    assert (status, answer["type"], answer["error"]["type"]) == (413, "error", "request_too_large")
    status, answer, _ = fetch(f"{stack.clients}/responses", large)
    assert (status, answer["error"]["code"]) == (413, "request_too_large")
