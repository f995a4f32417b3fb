"""Counting prompts for the pool that serves them, and learning from its engines' own counts."""

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.configurations import parsed
from tests.telemetry.entries import DECISION, entry, usage
from tests.tokens.model_files import write
from tidegate.runtime.lessons import lesson
from tidegate.runtime.prompts import PromptCounter
from tidegate.telemetry.metrics import Metrics
from tidegate.telemetry.record import RequestRecord, parse
from tidegate.tokens.correction import Corrections
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.counter import TokenCounter
from tidegate.tokens.prompt import Conversation, Prompt

EXACT, LEARNED, BYTES = CountSource.EXACT, CountSource.LEARNED, CountSource.BYTES
TEXT = "x" * 2_000


def config(**pools: str | None) -> Any:
    return parsed(
        {
            "pools": [
                {"name": name, "models": [name], "tokenizer": file, "endpoints": [{"address": f"10.0.0.{number}:1"}]}
                for number, (name, file) in enumerate(pools.items(), 1)
            ]
        }
    )


class Bench:
    """A prompt counter for the pools ``own`` and ``plain``, of which each serves the model of its name."""

    def __init__(self) -> None:
        self.counter = TokenCounter(load=lambda _: len, threads=1, deadline=float("inf"), patience=60)
        self.counter.warm()
        self.corrections = Corrections()
        metrics = Metrics(list, int, self.corrections)
        self.prompts = PromptCounter(
            self.counter, self.corrections, metrics, lambda model: model if model in {"own", "plain"} else None
        )
        self.prompts.configure(config(own=None, plain=None))

    def learn(self, record: RequestRecord) -> None:
        if taught := lesson(record):
            self.corrections.learn(*taught)

    async def count(self, *texts: str, model: str = "plain", **prompt: Any) -> TokenCount:
        return await self.prompts.count(model, Prompt(texts, **prompt))


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.counter.close()


def reported(prompt: int | None, uncorrected: int | None, cached: int | None = None, **changes: Any) -> RequestRecord:
    """Return the record of a request to ``plain`` whose engine counted ``prompt`` tokens."""
    decision = {**DECISION, "pool": "plain", "model": "plain", **changes.pop("decision", {})}
    if uncorrected is not None:
        decision["uncorrected_tokens"] = uncorrected
    return parse(entry(decision=decision, tokens=usage(prompt=prompt, cached=cached), **changes))


async def test_texts_and_the_chat_template_are_counted_together(bench: Bench) -> None:
    assert await bench.count("hello") == TokenCount(5, EXACT, 5)
    assert await bench.count("hello", conversation=Conversation(1)) == TokenCount(12, EXACT, 12)
    assert await bench.prompts.count("qwen3-8b", Prompt(("hello",), Conversation(1))) == TokenCount(13, EXACT, 13)


async def test_a_claude_is_counted_with_its_prior_unless_the_pool_has_its_tokenizer(bench: Bench) -> None:
    assert await bench.count("hello", model="claude-opus-4-1") == TokenCount(6, EXACT, 6)
    assert await bench.count("hello", model="claude-opus-5") == TokenCount(8, EXACT, 8)


async def test_schemas_that_are_shortened_never_make_a_count_negative(bench: Bench) -> None:
    shape = Conversation(1, schema_characters=10_000)
    assert await bench.count("hello", conversation=shape) == TokenCount(0, EXACT, 0)


async def test_token_ids_and_images_are_added_and_teach_nothing(bench: Bench) -> None:
    assert await bench.count("hello", other_tokens=765) == TokenCount(770, EXACT, None)
    assert await bench.count(other_tokens=3) == TokenCount(3, EXACT, None)
    assert await bench.count(conversation=Conversation(1), other_tokens=765) == TokenCount(772, EXACT, None)


async def test_a_count_is_corrected_by_what_engines_report_of_others(bench: Bench) -> None:
    for _ in range(200):
        bench.learn(reported(2_600, 2_000))
    ratio = bench.corrections.ratio("plain", "plain")
    assert ratio is not None
    assert ratio == pytest.approx(1.3, rel=0.01)
    assert await bench.count(TEXT) == TokenCount(round(2_000 * ratio), LEARNED, 2_000)
    assert await bench.count(TEXT, other_tokens=10) == TokenCount(round(2_000 * ratio) + 10, LEARNED, None)
    assert await bench.count(other_tokens=10) == TokenCount(10, EXACT)
    assert await bench.count(TEXT, model="own") == TokenCount(2_000, EXACT, 2_000)
    assert await bench.count(TEXT, model="unknown") == TokenCount(2_000, EXACT, 2_000)


async def test_a_count_by_bytes_is_neither_corrected_nor_taught_by(bench: Bench) -> None:
    bench.learn(reported(2_600, 2_000))
    bench.counter.close()
    assert await bench.count("x" * 20_000) == TokenCount(5_000, BYTES, None)


async def test_what_is_learned_does_not_feed_on_itself(bench: Bench) -> None:
    """The estimate of each request is what was learned from the ones before; an engine counts 1.3 times as much."""
    rng = random.Random(1)
    errors = []
    for _ in range(300):
        text = "x" * round(rng.lognormvariate(6.5, 1.0) + 64)
        count = await bench.count(text)
        truth = round(len(text) * 1.3)
        errors.append(abs(count.tokens - truth) / truth)
        bench.learn(reported(truth, count.uncorrected, decision={"prompt_tokens": count.tokens}))
    assert errors[0] == pytest.approx(0.3 / 1.3, rel=0.01)
    assert max(errors[20:]) < 0.05
    assert max(errors[200:]) < 0.01


@pytest.mark.parametrize(
    "record",
    [
        reported(None, 2_000),
        reported(2_600, None),
        reported(2_600, 2_000, status=500),
        reported(2_600, 2_000, flags=("downstream_connection_termination",)),
        reported(2_600, 2_000, cached=64, decision={"api": "messages"}),
    ],
    ids=["no usage", "not comparable", "failed", "broken off", "cached tokens left out"],
)
def test_a_report_that_does_not_speak_of_the_whole_prompt_teaches_nothing(bench: Bench, record: RequestRecord) -> None:
    bench.learn(record)
    assert len(bench.corrections) == 0


def test_cached_tokens_are_among_the_prompts_in_openais_usage(bench: Bench) -> None:
    bench.learn(reported(2_600, 2_000, cached=1_024))
    assert len(bench.corrections) == 1


def test_what_was_learned_for_a_pool_goes_with_it(bench: Bench) -> None:
    bench.learn(reported(2_600, 2_000))
    bench.prompts.configure(config(plain=None))
    assert len(bench.corrections) == 1
    bench.prompts.configure(config(own=None))
    assert len(bench.corrections) == 0


async def test_a_pool_with_a_tokenizer_is_counted_by_it_and_the_others_are_not(bench: Bench, tmp_path: Path) -> None:
    wanted = config(own=str(write(tmp_path / "tokenizer.json")), plain=None)
    await bench.prompts.load(wanted)
    assert (await bench.count("hello", model="own")).tokens == 5, "not before the configuration is in force"
    bench.prompts.configure(wanted)
    assert (await bench.count("hello", model="own")).tokens == 1
    assert (await bench.count("hello", model="plain")).tokens == 5
    bench.prompts.configure(config(own=None))
    assert (await bench.count("hello", model="own")).tokens == 5


async def test_a_prompt_that_is_led_to_a_pool_is_counted_as_that_pool_counts(bench: Bench, tmp_path: Path) -> None:
    wanted = config(own=str(write(tmp_path / "tokenizer.json")), plain=None)
    await bench.prompts.load(wanted)
    bench.prompts.configure(wanted)
    for model, pool, tokens in (("plain", "own", 1), ("own", "plain", 5), ("own", "", 1)):
        assert (await bench.prompts.count(model, Prompt(("hello",)), pool)).tokens == tokens


async def test_a_tokenizer_that_was_lost_since_the_check_costs_only_the_exactness(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path / "tokenizer.json")
    wanted = config(own=str(file), plain=None)
    file.unlink()
    with caplog.at_level(logging.ERROR, "tidegate.tokens"):
        await bench.prompts.load(wanted)
    bench.prompts.configure(wanted)
    assert "tokenizer lost" in caplog.text
    assert (await bench.count("hello", model="own")).tokens == 5
