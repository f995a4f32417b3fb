"""llama.cpp as the simulator's model has it, as far as that can be said without one."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from bench import llamacpp_fleet as bench
from bench.llamacpp_fleet import Measured, Processor
from tests.e2e.llamacpp.engine import Engine
from tests.e2e.llamacpp.gguf_model import write_tokenizer
from tests.e2e.llamacpp.server import SLOTS
from tidegate.simulator.profiles import Profile

TRUE = Profile("one", 500.0, 0.002, 0.003, 4e-6, 8_193, SLOTS, bench.BATCH_TOKENS)


def _cost(prompt: int, answer: int = 0, count: int = 1) -> float:
    """Return what so many such requests cost at once, step by step."""
    prefill = TRUE.step_seconds(count * prompt, 0, 0)
    held = [count * (prompt + at) for at in range(answer)]
    return 0.004 * count + prefill + sum(TRUE.step_seconds(0, count, context) for context in held)


def measured() -> Measured:
    short, long, more = bench._SHORT, bench._LONG, bench._TOKENS
    return Measured(_cost(short), _cost(long), _cost(short, more), _cost(long, more), _cost(short, more, SLOTS))


def test_what_an_engine_of_the_models_kind_was_measured_at_gives_its_profile() -> None:
    found = bench.profile("one", measured())
    assert found.step_seconds(0, 3, 900) == pytest.approx(TRUE.step_seconds(0, 3, 900), rel=0.02)
    assert found.prefill_tokens_per_second == pytest.approx(TRUE.prefill_tokens_per_second)
    assert found.context_token_seconds == pytest.approx(TRUE.context_token_seconds)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (SLOTS, bench.BATCH_TOKENS)
    assert found.kv_tokens >= SLOTS * 32_768


def test_a_measurement_that_contradicts_the_model_still_gives_a_profile() -> None:
    found = bench.profile("odd", measured()._replace(long=0.0, long_answered=0.0, together=0.0))
    assert found.sequence_seconds == found.context_token_seconds == 0
    assert found.step_seconds(1, 1, 1) > 0


def test_the_share_that_an_engine_had_is_that_of_the_thread_that_computes() -> None:
    before = {1: Processor(2.0, 1.0), 2: Processor(9.0, 0.0)}
    assert bench.share(before, {1: Processor(3.0, 1.0), 2: Processor(9.1, 5.0)}) == 1
    assert bench.share(before, {1: Processor(3.0, 4.0), 2: Processor(9.0, 0.0)}) == 0.25
    assert bench.share(before, {**before, 3: Processor(1.0, 1.0)}) == 0.5, "it began in between"
    assert bench.share(before, before) == 1, "it had nothing to do"


def test_what_a_process_had_of_the_processors_grows_with_what_it_does(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        engine = Engine("127.0.0.1:1", process, tmp_path)
        before = now = bench.threads(engine)
        deadline = time.monotonic() + 20
        while sum(one.ran for one in now.values()) < 0.1:
            assert time.monotonic() < deadline
            now = bench.threads(engine)
        process.kill()
    assert 0 < bench.share(before, now) <= 1


def test_the_one_who_reads_sees_what_was_measured() -> None:
    assert bench.told(TRUE) == (
        "one: 500 prompt tokens/s; a step takes 2.00 ms, 3.00 ms more for each request in it, "
        "4.00 us for each token of context; 4 slots"
    )


@pytest.mark.parametrize("tokens", [16, 17, 500])
def test_a_prompt_has_so_many_tokens_and_a_beginning_of_its_own(tmp_path: Path, tokens: int) -> None:
    file = tmp_path / "tokenizer.json"
    write_tokenizer(file)
    assert len(Tokenizer.from_file(str(file)).encode(bench.prompt(7, tokens)).ids) == tokens
    assert bench.prompt(7, tokens)[:9] != bench.prompt(8, tokens)[:9]
