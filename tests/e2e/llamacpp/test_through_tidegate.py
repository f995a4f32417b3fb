"""llama.cpp, an engine that nobody of this project wrote, behind the whole of Tidegate."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.e2e.llamacpp.engine import MODEL, Engine, running
from tests.e2e.stack import Stack, configuration, until, up


@pytest.fixture
def pair(gguf: Path, tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    with running(gguf, tmp_path / "one.log") as one, running(gguf, tmp_path / "two.log") as two:
        yield one, two


def _port(engine: Engine) -> int:
    return int(engine.address.rpartition(":")[2])


def _reported(stack: Stack, name: str) -> dict[str, float]:
    return {
        dict(labels)["endpoint"]: value
        for (sample, labels), value in stack.metrics().items()
        if sample == f"tidegate_endpoint_{name}"
    }


def test_llama_cpp_answers_streams_and_reports_through_tidegate(tmp_path: Path, pair: tuple[Engine, Engine]) -> None:
    config = configuration([_port(engine) for engine in pair], engine="llamacpp")
    with (
        up(tmp_path, config) as stack,
        openai.OpenAI(base_url=stack.clients, api_key="unused", max_retries=0) as client,
    ):
        until(lambda: _reported(stack, "running") == {engine.address: 0.0 for engine in pair}, 10, "both report")

        answer = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=16
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 16

        chunks = list(
            client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "hello"}],
                max_tokens=24,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 24
        until(lambda: stack.total("tidegate_completion_tokens_total", pool="default") == 40, 5, "both are counted")
        assert stack.total("tidegate_time_to_first_token_seconds_count", pool="default") == 1

        long = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "tell"}], max_tokens=20_000, stream=True
        )
        next(iter(long))
        until(lambda: sum(_reported(stack, "running").values()) == 1, 5, "the engine says that it is busy")
        busy = next(address for address, value in _reported(stack, "running").items() if value == 1)
        assert stack.total("tidegate_inflight_requests", endpoint=busy) == 1
        before = stack.total("tidegate_picks_total", endpoint=busy)
        for _ in range(4):
            client.completions.create(model=MODEL, prompt="once", max_tokens=2)
        assert stack.total("tidegate_picks_total", endpoint=busy) == before, "the idle one gets what comes meanwhile"
        long.close()
        until(lambda: stack.inflight() == {}, 5, "the stream that was left is released")
