"""Priors by GPU."""

import pytest

from tidegate.fleet.gpu import PRIORS, prior


@pytest.mark.parametrize("name", PRIORS)
def test_every_prior_is_a_pace_that_an_engine_can_have(name: str) -> None:
    pace = PRIORS[name]
    assert 1e-6 < pace.prefill_seconds < 1e-2
    assert 1e-3 < pace.step_seconds < 0.2
    assert pace.kv_tokens >= 4096
    assert min(pace) > 0


def test_a_newer_gpu_is_expected_to_be_faster() -> None:
    order = ["t4", "a10", "a100", "h100", "b200"]
    assert [prior(name).prefill_seconds for name in order] == sorted(
        (prior(name).prefill_seconds for name in order), reverse=True
    )
    assert prior("rtx4090").step_seconds > prior("a100").step_seconds > prior("h100").step_seconds


def test_the_figures_are_near_what_engines_reach() -> None:
    assert prior("h100").step_seconds == pytest.approx(0.0064, rel=0.01)
    assert prior("a100").kv_tokens == pytest.approx(424_000, rel=0.01)
    assert 1 / prior("rtx4090").prefill_seconds == pytest.approx(5_137, rel=0.01)


def test_what_nobody_knows_is_taken_for_the_middle_of_the_field() -> None:
    assert prior("") == prior("abacus") == prior("a100")


def test_a_step_grows_with_the_batch_and_its_context() -> None:
    pace = prior("a100")
    assert pace.step(0, 0) == pace.step_seconds
    assert pace.step(10, 0) < pace.step(10, 10_000) < pace.step(20, 10_000)


def test_a_prompt_token_takes_longer_in_a_busy_batch() -> None:
    pace = prior("a100")
    assert pace.prefill_seconds < pace.prompt_token(0.01) < pace.prompt_token(0.05)
