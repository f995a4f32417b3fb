"""The engine without Tidegate: what the tests through Tidegate take for granted."""

import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from tests.e2e.llamacpp.engine import MODEL, Engine, running
from tests.ports import free_port

QUESTION: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "Where does the river end?"}]


@pytest.fixture
def client(llamacpp: Engine) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{llamacpp.url}/v1", api_key="none", max_retries=0, timeout=30) as client:
        yield client


def gauge(engine: Engine, name: str) -> float:
    with urllib.request.urlopen(f"{engine.url}/metrics", timeout=10) as page:
        match = re.search(rf"^{re.escape(name)} (\S+)$", page.read().decode(), re.MULTILINE)
    assert match is not None, f"no {name} on the page"
    return float(match[1])


def test_a_chat_completion_has_as_many_tokens_as_were_asked_for(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=24)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 24
    assert answer.usage.prompt_tokens > len("Where does the river end?") // 4
    assert answer.choices[0].finish_reason == "length"
    assert re.fullmatch(r"[a-z ]{24,}", answer.choices[0].message.content or "")


def test_a_streamed_answer_arrives_token_by_token_and_ends_with_its_usage(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=24, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    texts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    assert len(texts) == 24
    assert re.fullmatch(r"[a-z ]{24,}", "".join(texts))
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 24


def test_equal_seeds_give_equal_answers(client: openai.OpenAI) -> None:
    answers = {
        client.completions.create(model=MODEL, prompt="The", max_tokens=16, seed=5, temperature=1.0).choices[0].text
        for _ in range(3)
    }
    assert len(answers) == 1


def test_a_prompt_over_the_context_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=MODEL, prompt="z" * 33_000, max_tokens=1)


def test_the_metrics_page_has_the_gauges_that_the_dialect_reads(llamacpp: Engine) -> None:
    assert gauge(llamacpp, "llamacpp:requests_processing") == 0
    assert gauge(llamacpp, "llamacpp:requests_deferred") == 0


def test_an_open_stream_counts_as_processing(llamacpp: Engine, client: openai.OpenAI) -> None:
    with client.completions.create(model=MODEL, prompt="The", max_tokens=30_000, stream=True) as stream:
        next(iter(stream))
        assert gauge(llamacpp, "llamacpp:requests_processing") == 1


def test_sigterm_ends_the_server_while_a_stream_is_open(llamacpp: Engine, client: openai.OpenAI) -> None:
    with client.completions.create(model=MODEL, prompt="The", max_tokens=30_000, stream=True) as stream:
        next(iter(stream))
        llamacpp.process.send_signal(signal.SIGTERM)
        assert llamacpp.process.wait(timeout=10) == 0


def test_a_server_that_cannot_start_is_reported_with_its_output(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match=r"(?s)ended with \d+; its last output:.*missing\.gguf"),
        running(tmp_path / "missing.gguf", tmp_path / "log", port=free_port()),
    ):
        pytest.fail("the block must not be entered")
