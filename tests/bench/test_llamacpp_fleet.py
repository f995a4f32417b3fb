"""llama.cpp as the simulator's model has it, as far as that can be said without one."""

import pytest
from tokenizers import Tokenizer

from bench import llamacpp_fleet as bench
from bench.llamacpp_fleet import Measured, Timing
from tests.e2e.llamacpp.gguf_model import write_tokenizer
from tests.e2e.llamacpp.server import SLOTS
from tidegate.simulator.profiles import Profile

TRUE = Profile("one", 500.0, 0.002, 0.003, 4e-6, 8_193, SLOTS, bench.BATCH_TOKENS)


def _tpot(sequences: int, prompt: int) -> float:
    return TRUE.step_seconds(0, sequences, round(sequences * (prompt + bench._TOKENS / 2)))


def measured(**changes: Timing) -> Measured:
    def first(prompt: int) -> float:
        return 0.01 + prompt / TRUE.prefill_tokens_per_second

    return Measured(
        Timing(first(bench._SHORT), _tpot(1, bench._SHORT)),
        Timing(first(bench._LONG), _tpot(1, bench._LONG)),
        Timing(first(bench._SHORT * SLOTS), _tpot(SLOTS, bench._SHORT)),
    )._replace(**changes)


def test_what_an_engine_of_the_models_kind_was_measured_at_gives_its_profile() -> None:
    found = bench.profile("one", measured())
    assert found.step_seconds(0, 3, 900) == pytest.approx(TRUE.step_seconds(0, 3, 900))
    assert found.prefill_tokens_per_second == pytest.approx(TRUE.prefill_tokens_per_second)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (SLOTS, bench.BATCH_TOKENS)
    assert found.kv_tokens >= SLOTS * 32_768


def test_a_measurement_that_contradicts_the_model_still_gives_a_profile() -> None:
    odd = measured(long=Timing(0.0, 0.0), together=Timing(0.0, 0.0))
    found = bench.profile("odd", odd)
    assert found.sequence_seconds == found.context_token_seconds == 0
    assert found.step_seconds(1, 1, 1) > 0


def test_the_middle_of_the_rounds_counts_figure_by_figure() -> None:
    rounds = [Measured(*(Timing(float(at * 10 + kind), float(at)) for kind in range(3))) for at in (3, 1, 2)]
    assert bench._middle(rounds) == Measured(Timing(20, 2), Timing(21, 2), Timing(22, 2))


def test_the_one_who_reads_sees_what_was_measured() -> None:
    assert bench.told(TRUE) == (
        "one: 500 prompt tokens/s; a step takes 2.00 ms, 3.00 ms more for each request in it, "
        "4.00 us for each token of context; 4 slots"
    )


@pytest.mark.parametrize("tokens", [16, 17, 500])
def test_a_prompt_has_so_many_tokens_and_a_beginning_of_its_own(
    tmp_path_factory: pytest.TempPathFactory, tokens: int
) -> None:
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    write_tokenizer(file)
    assert len(Tokenizer.from_file(str(file)).encode(bench.prompt(7, tokens)).ids) == tokens
    assert bench.prompt(7, tokens)[:9] != bench.prompt(8, tokens)[:9]
