"""Every API that is served, through a real Envoy, by the clients that people use."""

from collections.abc import Iterator

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
    until(
        lambda: stack.total("tidegate_requests_total", api="models", code="200", outcome="ok") - before == 3,
        5,
        "three requests that went well are counted",
    )


def test_an_unknown_model_is_not_found(client: openai.OpenAI, stack: Stack) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("nothing")
    assert caught.value.code == "model_not_found"
    until(
        lambda: stack.total("tidegate_requests_total", api="models", outcome="refused") == 1, 5, "it counts as refused"
    )
