"""Learning how far counts are from what engines report."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.tokens.correction import FULL, PLAUSIBLE, SMALLEST, Corrections


def learned(corrections: Corrections) -> float:
    ratio = corrections.ratio("pool", "model")
    assert ratio is not None
    return ratio


def engine(factor: float, rng: random.Random, noise: float = 0.0) -> tuple[int, int]:
    """Return what we count of a prompt, and what an engine says that counts ``factor`` times as much."""
    counted = round(rng.lognormvariate(6.5, 1.0)) + SMALLEST
    return counted, round(counted * factor * rng.lognormvariate(0.0, noise))


def test_before_the_first_report_there_is_no_correction() -> None:
    assert Corrections().ratio("pool", "model") is None


def test_a_report_counts_for_its_pool_and_model_alone() -> None:
    corrections = Corrections()
    assert corrections.learn("pool", "model", 2_000, 2_600)
    assert corrections.ratio("pool", "model") is not None
    assert corrections.ratio("pool", "other") is None
    assert corrections.ratio("other", "model") is None


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.0, 1.3, 2.1, 4.0])
def test_it_converges_to_the_true_ratio(factor: float) -> None:
    rng, corrections = random.Random(1), Corrections()
    for _ in range(300):
        corrections.learn("pool", "model", *engine(factor, rng))
    assert learned(corrections) == pytest.approx(factor, rel=0.01)


def test_ten_reports_are_enough_for_most_of_the_way() -> None:
    rng, corrections = random.Random(2), Corrections()
    for _ in range(10):
        corrections.learn("pool", "model", *engine(1.3, rng))
    assert learned(corrections) == pytest.approx(1.3, rel=0.04)


def test_it_is_stable_under_noise_and_a_few_absurd_reports() -> None:
    rng, corrections = random.Random(3), Corrections()
    seen = []
    for number in range(2_000):
        counted, reported = engine(1.3, rng, noise=0.1)
        if number % 50 == 49:  # within the plausible, and beyond it
            reported = rng.choice([0, 1, counted // 7, counted * 7, 10**8])
        corrections.learn("pool", "model", counted, reported)
        if number >= 100:
            seen.append(learned(corrections))
    assert all(ratio == pytest.approx(1.3, rel=0.08) for ratio in seen)
    assert sum(seen) / len(seen) == pytest.approx(1.3, rel=0.02)


def test_one_absurd_report_moves_it_by_two_percent_at_most() -> None:
    rng, corrections = random.Random(4), Corrections()
    for _ in range(200):
        corrections.learn("pool", "model", *engine(1.3, rng))
    for absurd in (250, 7_900):
        before = learned(corrections)
        assert corrections.learn("pool", "model", 1_024, absurd)
        assert learned(corrections) == pytest.approx(before, rel=0.021)


def test_it_follows_an_engine_that_changes() -> None:
    rng, corrections = random.Random(5), Corrections()
    for factor in (1.3, 0.9):
        for _ in range(200):
            corrections.learn("pool", "model", *engine(factor, rng))
        assert learned(corrections) == pytest.approx(factor, rel=0.01)


def test_small_prompts_weigh_little_and_the_smallest_nothing() -> None:
    corrections = Corrections()
    assert not corrections.learn("pool", "model", SMALLEST - 1, SMALLEST * 2)
    assert corrections.ratio("pool", "model") is None
    for _ in range(100):  # a template that adds 50 tokens more than we think
        corrections.learn("pool", "model", SMALLEST, SMALLEST + 50)
        corrections.learn("pool", "model", 4 * FULL, 4 * FULL + 50)
    assert learned(corrections) == pytest.approx(1.0 + (50 / SMALLEST) * (SMALLEST / FULL), abs=0.03)


@pytest.mark.parametrize("reported", [0, 1, int(1_000 / PLAUSIBLE) - 1, int(1_000 * PLAUSIBLE) + 1, 10**8])
def test_what_cannot_be_a_count_of_the_same_prompt_teaches_nothing(reported: int) -> None:
    corrections = Corrections()
    assert not corrections.learn("pool", "model", 1_000, reported)
    assert len(corrections) == 0


def test_the_least_recently_reported_model_is_forgotten() -> None:
    corrections = Corrections(models=2)
    for model in ("a", "b", "a", "c"):
        corrections.learn("pool", model, 1_000, 1_300)
    assert [ratio.model for ratio in corrections] == ["a", "c"]
    assert len(corrections) == 2


def test_what_was_learned_in_a_pool_that_is_gone_is_forgotten() -> None:
    corrections = Corrections()
    for pool in ("first", "second"):
        corrections.learn(pool, "model", 1_000, 1_300)
    corrections.keep(["second", "third"])
    assert [(ratio.pool, ratio.model) for ratio in corrections] == [("second", "model")]


@given(st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)), max_size=60))
def test_whatever_is_reported_the_ratio_stays_plausible(reports: list[tuple[int, int]]) -> None:
    corrections = Corrections()
    for counted, reported in reports:
        corrections.learn("pool", "model", counted, reported)
    assert all(1 / PLAUSIBLE <= ratio.value <= PLAUSIBLE for ratio in corrections)
