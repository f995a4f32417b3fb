"""Output that was not told is inferred from its size, marked as inferred, and never zero where something was sent."""

from typing import Any

import pytest

from tests.telemetry.entries import DECISION, entry, usage
from tidegate.telemetry.output_size import STREAMED_BYTES, OutputSizes
from tidegate.telemetry.record import RequestRecord, parse

GONE = ("downstream_connection_termination",)


def settled(sizes: OutputSizes | None = None, **changes: Any) -> RequestRecord:
    return (sizes or OutputSizes()).settled(parse(entry(**changes)))


def output(record: RequestRecord) -> tuple[int | None, int | None]:
    return record.usage.completion_tokens, record.estimated_completion_tokens


def test_what_the_engine_told_is_not_estimated() -> None:
    assert output(settled(tokens=usage(completion=21), size=99_999)) == (21, None)


def test_a_stream_that_told_nothing_is_estimated_by_its_size() -> None:
    assert output(settled(size=STREAMED_BYTES * 50)) == (None, 50)


def test_how_many_bytes_a_token_takes_is_learned_from_streams_that_told() -> None:
    sizes = OutputSizes()
    for _ in range(40):
        settled(sizes, tokens=usage(completion=1_000), size=300_000)
    assert output(settled(sizes, size=150_000))[1] == pytest.approx(500, rel=0.05)


@pytest.mark.parametrize("other", [{"pool": "other"}, {"model": "other"}, {"api": "messages"}])
def test_it_is_learned_for_each_pool_model_and_api_by_itself(other: dict[str, str]) -> None:
    sizes = OutputSizes()
    for _ in range(40):
        settled(sizes, tokens=usage(completion=1_000), size=300_000)
    assert output(settled(sizes, decision={**DECISION, **other}, size=150_000)) == (None, 750)


def test_nothing_is_learned_from_answers_that_broke_off_or_were_whole() -> None:
    sizes = OutputSizes()
    for _ in range(40):
        settled(sizes, tokens=usage(completion=1_000), size=300_000, flags=GONE)
        settled(sizes, tokens=usage(completion=1_000), size=300_000, decision={**DECISION, "stream": False})
    assert output(settled(sizes, size=150_000)) == (None, 750)


def test_what_was_learned_in_pools_that_are_gone_is_forgotten() -> None:
    sizes = OutputSizes()
    for _ in range(40):
        settled(sizes, tokens=usage(completion=1_000), size=300_000)
    sizes.keep(["another"])
    assert output(settled(sizes, size=150_000)) == (None, 750)


def test_a_stream_that_broke_off_is_charged_what_was_delivered() -> None:
    assert output(settled(size=STREAMED_BYTES * 30, flags=GONE)) == (None, 30)
    assert output(settled(size=STREAMED_BYTES * 30, flags=("upstream_remote_reset",))) == (None, 30)


def test_a_count_of_the_beginning_alone_is_not_taken_for_all() -> None:
    assert output(settled(tokens=usage(completion=1), size=STREAMED_BYTES * 30, flags=GONE)) == (None, 30)
    assert output(settled(tokens=usage(completion=40), size=STREAMED_BYTES * 30, flags=GONE)) == (40, None)


def test_a_whole_answer_is_estimated_by_its_text() -> None:
    assert output(settled(decision={**DECISION, "stream": False}, size=400)) == (None, 100)


@pytest.mark.parametrize(
    "changes",
    [
        {"decision": {**DECISION, "api": "embeddings"}},
        {"decision": {**DECISION, "api": "rerank"}},
        {"status": 503},
        {"attempts": 0},
    ],
)
def test_what_is_no_text_of_an_engine_is_not_estimated(changes: dict[str, Any]) -> None:
    assert output(settled(size=100_000, **changes)) == (None, None)


def test_nothing_sent_is_nothing() -> None:
    assert output(settled(size=0)) == (None, 0)


READ = {"over": False, "failed": False, "bytes": 1_000, "output_tokens": 10}


def test_an_answer_that_was_read_in_part_is_estimated_from_that_and_the_bytes_since() -> None:
    assert output(settled(answer=READ, size=1_500, flags=GONE)) == (None, 15)
    assert output(settled(answer=READ, size=900, flags=GONE)) == (None, 10)


def test_an_answer_that_was_read_to_its_end_and_told_nothing_is_estimated_from_its_text() -> None:
    assert output(settled(answer={**READ, "over": True}, size=99_000)) == (None, 10)


def test_an_answer_that_was_read_to_its_end_costs_what_it_said() -> None:
    answer = {**READ, "over": True, "prompt_tokens": 5, "completion_tokens": 7, "cached_tokens": 2}
    record = settled(answer=answer, tokens=usage(prompt=1, completion=1, cached=None), size=99_000, flags=GONE)
    assert output(record) == (7, None)
    assert (record.usage.prompt_tokens, record.usage.cached_tokens, record.output_tokens) == (5, 2, 7)
