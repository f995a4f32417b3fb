"""The model of a batching engine, step by step."""

import pytest

from tests.simulator.engines import SMALL, engine_request, run_to_end, small_engine
from tidegate.simulator.batching import BatchingEngine, QueueFullError
from tidegate.simulator.sequence import Finished
from tidegate.simulator.stats import FinishReason, Gauges


def test_an_idle_engine_has_no_step_to_do() -> None:
    engine = small_engine()
    assert engine.step(0.0) is None
    assert engine.gauges == Gauges(0, 0, 0.0)


def test_the_step_that_ends_the_prefill_brings_the_first_token() -> None:
    engine = small_engine()
    engine.submit([engine_request("a", prompt=20, output=3)], 0.0)
    outcomes = run_to_end(engine)
    assert [outcome.tokens for outcome in outcomes] == [("a",)] * 3
    assert outcomes[0].duration == pytest.approx(0.01 + 20 / 1000)
    assert outcomes[1].duration == pytest.approx(0.01 + 0.001)
    assert outcomes[2].finished == (Finished("a", FinishReason.LENGTH, 0),)


def test_a_long_prompt_is_prefilled_in_chunks() -> None:
    engine = small_engine()
    engine.submit([engine_request("a", prompt=150, output=1)], 0.0)
    outcomes = run_to_end(engine)
    assert [outcome.duration for outcome in outcomes] == pytest.approx([0.074, 0.074, 0.01 + 22 / 1000])
    assert [len(outcome.tokens) for outcome in outcomes] == [0, 0, 1]


def test_decoding_goes_on_while_another_prompt_is_prefilled() -> None:
    engine = small_engine()
    engine.submit([engine_request("old", prompt=10, output=10)], 0.0)
    engine.step(0.0)
    engine.submit([engine_request("new", prompt=100, output=1)], 0.1)
    outcome = engine.step(0.1)
    assert outcome is not None
    assert outcome.tokens == ("old",)
    assert outcome.duration == pytest.approx(0.01 + 0.001 + 63 / 1000), "a chunk fills what decoding leaves"


def test_a_step_grows_with_the_batch() -> None:
    alone, full = small_engine(), small_engine()
    alone.submit([engine_request("a")], 0.0)
    full.submit([engine_request(name, prompt=10) for name in "abcd"], 0.0)
    alone.step(0.0)
    full.step(0.0)
    first, second = alone.begin(1.0), full.begin(1.0)
    assert first is not None
    assert second is not None
    assert second > first


def test_no_more_than_the_batch_run_and_the_rest_wait_in_their_order() -> None:
    engine = small_engine()
    engine.submit([engine_request(name, prompt=5, output=2) for name in "abcdef"], 0.0)
    engine.begin(0.0)
    assert (engine.gauges.running, engine.gauges.waiting) == (4, 2)
    engine.complete(0.1)
    outcomes = run_to_end(engine, 0.1)
    assert [finished.id for outcome in outcomes for finished in outcome.finished] == list("abcdef")


def test_a_waiting_request_that_does_not_fit_holds_back_those_behind_it() -> None:
    engine = small_engine(max_num_batched_tokens=1024)
    engine.submit([engine_request("big", prompt=400, output=2), engine_request("next", prompt=200, output=1)], 0.0)
    engine.submit([engine_request("small", prompt=10, output=1)], 0.0)
    outcome = engine.step(0.0)
    assert outcome is not None
    assert outcome.tokens == ("big",)


def test_the_queue_is_bounded_by_what_a_full_batch_leaves() -> None:
    engine = small_engine(max_queue=2)
    engine.submit([engine_request(str(number)) for number in range(6)], 0.0)
    with pytest.raises(QueueFullError):
        engine.submit([engine_request("one too many")], 0.0)
    assert engine.counters.rejections == 1
    run_to_end(engine)
    engine.submit([engine_request("later")], 9.0)


def test_of_several_requests_all_or_none_are_taken() -> None:
    engine = small_engine(max_queue=0)
    with pytest.raises(QueueFullError):
        engine.submit([engine_request(str(number)) for number in range(5)], 0.0)
    assert engine.gauges == Gauges()


@pytest.mark.parametrize(("prompt", "output", "limit"), [(0, 4, 4), (510, 4, 4), (20, 5, 4), (20, -1, 4)], ids=str)
def test_a_request_that_can_never_be_served_is_refused(prompt: int, output: int, limit: int) -> None:
    with pytest.raises(ValueError, match="must"):
        small_engine().submit([engine_request("a", prompt, output, limit=limit)], 0.0)


def test_a_live_id_cannot_be_used_again() -> None:
    engine = small_engine()
    engine.submit([engine_request("a")], 0.0)
    with pytest.raises(ValueError, match="unique"):
        engine.submit([engine_request("a")], 0.0)


def test_a_cached_prefix_needs_less_prefill() -> None:
    engine = small_engine(max_num_batched_tokens=1024)
    engine.submit([engine_request("a", prompt=100, output=1, prefix="p")], 0.0)
    (first,) = run_to_end(engine)
    engine.submit([engine_request("b", prompt=100, output=1, prefix="p")], 1.0)
    (second,) = run_to_end(engine, 1.0)
    assert first.finished == (Finished("a", FinishReason.LENGTH, 0),)
    assert second.finished == (Finished("b", FinishReason.LENGTH, 96),)
    assert first.duration - second.duration == pytest.approx(96 / 1000)
    assert (engine.counters.prefix_queries, engine.counters.prefix_hits) == (200, 96)
    assert (engine.counters.prompt_tokens, engine.counters.cached_prompt_tokens) == (200, 96)


def test_the_last_prompt_token_is_computed_even_if_all_is_cached() -> None:
    engine = small_engine()
    for name in "ab":
        engine.submit([engine_request(name, prompt=32, output=1, prefix="p")], 0.0)
        outcomes = run_to_end(engine)
    assert outcomes[0].finished[0].cached_tokens == 16


def test_requests_admitted_in_one_step_share_their_prefix() -> None:
    engine = small_engine()
    engine.submit([engine_request(name, prompt=40, output=1, prefix="p") for name in "ab"], 0.0)
    (outcome,) = run_to_end(engine)
    assert [finished.cached_tokens for finished in outcome.finished] == [0, 32]


def test_the_answer_is_cached_for_the_next_turn() -> None:
    engine = small_engine()
    engine.submit([engine_request("first", prompt=20, output=30)], 0.0)
    run_to_end(engine)
    engine.submit([engine_request("second", prompt=60, output=1, prefix="first")], 0.0)
    assert run_to_end(engine)[-1].finished[0].cached_tokens == 48


def test_usage_falls_to_zero_at_the_end_though_the_prefix_is_remembered() -> None:
    engine = small_engine()
    engine.submit([engine_request("a", prompt=100, output=1)], 0.0)
    engine.begin(0.0)
    assert engine.gauges.kv_usage == pytest.approx(4 / 32)
    engine.complete(0.1)
    run_to_end(engine)
    assert engine.gauges.kv_usage == 0.0


def test_the_youngest_is_preempted_when_blocks_run_out_and_finishes_later() -> None:
    engine = small_engine(num_gpu_blocks=9, max_num_batched_tokens=1024)  # 8 blocks, 128 tokens
    engine.submit([engine_request("old", prompt=60, output=50), engine_request("young", prompt=60, output=20)], 0.0)
    outcomes = run_to_end(engine)
    assert [name for outcome in outcomes for name in outcome.preempted] == ["young"]
    assert [finished.id for outcome in outcomes for finished in outcome.finished] == ["old", "young"]
    tokens = [name for outcome in outcomes for name in outcome.tokens]
    assert (tokens.count("old"), tokens.count("young")) == (50, 20), "no token is handed out twice"
    assert engine.counters.preemptions == 1
    assert engine.counters.prompt_tokens == 120, "the recomputed prompt is not counted again"
    assert engine.counters.request_preemptions.sum == 1


def test_what_a_preempted_request_had_is_computed_anew() -> None:
    engine = small_engine(num_gpu_blocks=9, max_num_batched_tokens=1024)
    engine.submit([engine_request("old", prompt=60, output=50), engine_request("young", prompt=60, output=20)], 0.0)
    recomputed, first_prefill = sorted(outcome.duration for outcome in run_to_end(engine))[-2:]
    assert first_prefill == pytest.approx(0.01 + 120 / 1000)
    assert 0.01 + 1 / 1000 < recomputed < first_prefill


def test_prefill_alone_ends_without_a_token() -> None:
    engine = small_engine()
    engine.submit([engine_request("a", prompt=30, output=0)], 0.0)
    (outcome,) = run_to_end(engine)
    assert outcome.tokens == ()
    assert outcome.finished == (Finished("a", FinishReason.STOP, 0),)
    assert engine.counters.prompt_tokens == 30


def test_an_answer_shorter_than_its_limit_ends_by_itself() -> None:
    engine = small_engine()
    engine.submit([engine_request("a", output=4, limit=9)], 0.0)
    assert run_to_end(engine)[-1].finished[0].reason is FinishReason.STOP
    assert engine.counters.finished == {FinishReason.STOP: 1, FinishReason.LENGTH: 0}


def test_aborting_frees_a_running_and_a_waiting_request_at_once() -> None:
    engine = small_engine(max_num_seqs=1)
    engine.submit([engine_request("running"), engine_request("waiting")], 0.0)
    engine.step(0.0)
    assert engine.abort("waiting")
    assert engine.abort("running")
    assert engine.gauges == Gauges(0, 0, 0.0)
    assert engine.step(1.0) is None
    assert sum(engine.counters.finished.values()) == 0, "vLLM counts no aborts"


def test_aborting_what_is_not_live_changes_nothing() -> None:
    engine = small_engine()
    engine.submit([engine_request("a", output=1)], 0.0)
    run_to_end(engine)
    assert not engine.abort("a")
    assert not engine.abort("never seen")


def test_a_request_aborted_within_a_step_gets_nothing_from_it() -> None:
    engine = small_engine()
    engine.submit([engine_request("a"), engine_request("b")], 0.0)
    engine.begin(0.0)
    engine.abort("a")
    outcome = engine.complete(0.1)
    assert outcome.tokens == ("b",)


def test_an_id_can_be_used_again_after_an_abort_within_a_step() -> None:
    engine = small_engine()
    engine.submit([engine_request("a", output=2)], 0.0)
    engine.begin(0.0)
    engine.abort("a")
    engine.submit([engine_request("a", output=2)], 0.05)
    assert engine.complete(0.1).tokens == ()
    assert [outcome.tokens for outcome in run_to_end(engine, 0.1)] == [("a",), ("a",)]


def test_steps_cannot_overlap() -> None:
    engine = small_engine()
    engine.submit([engine_request("a")], 0.0)
    engine.begin(0.0)
    with pytest.raises(RuntimeError):
        engine.begin(0.0)
    engine.complete(0.1)
    with pytest.raises(RuntimeError):
        engine.complete(0.2)


def test_the_times_of_a_request_add_up() -> None:
    engine = small_engine(max_num_seqs=1)
    engine.submit([engine_request("a", prompt=10, output=1)], 0.0)
    engine.submit([engine_request("b", prompt=10, output=3)], 0.0)
    run_to_end(engine)
    counters = engine.counters
    assert counters.queue.sum == pytest.approx(0.02)
    assert counters.first_token.sum == pytest.approx(0.02 + 0.04)
    assert counters.between_tokens.count == 2
    assert counters.between_tokens.sum == pytest.approx(0.022)
    assert counters.decode.sum == pytest.approx(0.022)
    assert counters.per_output_token.sum == pytest.approx(0.011)
    assert counters.inference.sum == pytest.approx(counters.prefill.sum + counters.decode.sum)
    assert counters.end_to_end.sum == pytest.approx(counters.queue.sum + counters.inference.sum)
    assert counters.generation_tokens == 4
    assert counters.step_tokens.sum == 10 + 10 + 2


def test_an_engine_needs_room_for_its_longest_request() -> None:
    with pytest.raises(ValueError, match="512 tokens"):
        BatchingEngine(SMALL, 513, 0)
    with pytest.raises(ValueError, match="max_queue"):
        BatchingEngine(SMALL, 512, -1)
