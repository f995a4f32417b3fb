"""How long answers are expected to be."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.fleet.output_lengths import MOST_KINDS, PRIOR_OUTPUT_TOKENS, OutputLengths, PoolOutputLengths

LENGTHS = st.lists(st.integers(0, 10**9), max_size=80)


def seen(*lengths: int) -> OutputLengths:
    learned = OutputLengths()
    for tokens in lengths:
        learned.observe(tokens)
    return learned


def test_before_any_answer_the_prior_holds() -> None:
    assert OutputLengths().mean() == PRIOR_OUTPUT_TOKENS
    assert OutputLengths().answers == 0


def test_the_mean_is_that_of_the_answers() -> None:
    rng = random.Random(2)
    lengths = [round(rng.lognormvariate(5, 1)) + 1 for _ in range(3000)]
    assert seen(*lengths).mean() == pytest.approx(sum(lengths) / len(lengths), rel=0.25)


def test_a_limit_cuts_the_long_answers_alone() -> None:
    learned = seen(*[10, 1000] * 300)
    assert learned.mean() == pytest.approx(505, rel=0.05)
    assert learned.mean(100) == pytest.approx(55, rel=0.05)
    assert learned.mean(5) == 5
    assert learned.mean(10**6) == pytest.approx(learned.mean())


def test_a_high_quantile_tells_of_the_tail() -> None:
    learned = seen(*([10] * 8 + [3000] * 2) * 100)
    assert learned.quantile(0.5) == pytest.approx(10, rel=0.35)
    assert learned.quantile(0.95) == pytest.approx(3000, rel=0.35)
    assert learned.quantile(0.95, limit=64) == 64


def test_old_answers_are_forgotten() -> None:
    assert seen(*[4000] * 1000, *[20] * 2000).mean() == pytest.approx(20, rel=0.1)


def test_it_goes_on_for_ever() -> None:
    assert seen(*[50] * 20_000).mean() == pytest.approx(50)


@given(LENGTHS, st.none() | st.integers(1, 10**9), st.floats(0.0, 1.0))
def test_whatever_was_seen_the_expectation_is_a_number_within_the_limit(
    lengths: list[int], limit: int | None, share: float
) -> None:
    learned = seen(*lengths)
    for value in (learned.mean(limit), learned.quantile(share, limit)):
        assert 0 <= value < math.inf
        assert limit is None or value <= limit


@given(LENGTHS, st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_higher_limit_never_makes_answers_shorter(lengths: list[int], one: int, other: int) -> None:
    learned = seen(*lengths)
    assert learned.mean(min(one, other)) <= learned.mean(max(one, other)) * (1 + 1e-9)


def test_kinds_are_told_apart_once_there_are_enough_of_them() -> None:
    pool = PoolOutputLengths()
    for _ in range(400):
        pool.observe("long", 2000)
        pool.observe("short", 10)
    assert pool.mean("long") > 1500
    assert pool.mean("short") < 200
    assert 500 < pool.mean("never seen") < 1500
    assert pool.quantile("short", 0.9) < 20 < 1500 < pool.quantile("long", 0.9)


def test_a_new_kind_starts_with_what_the_pool_knows() -> None:
    pool = PoolOutputLengths()
    for _ in range(1000):
        pool.observe("old", 40)
    pool.observe("new", 50)
    assert pool.mean("new") == pytest.approx(40, rel=0.3)


def test_only_so_many_kinds_are_remembered() -> None:
    pool = PoolOutputLengths()
    for number in range(MOST_KINDS * 2):
        pool.observe(f"kind {number}", 100)
    assert len(pool._by_kind) == MOST_KINDS


def test_what_was_learned_goes_on_elsewhere() -> None:
    one, other = PoolOutputLengths(), PoolOutputLengths()
    for tokens in range(1, 900, 7):
        one.observe("chat" if tokens % 2 else "code", tokens)
    other.restore(one.image())
    for kind in ("chat", "code", "new"):
        assert other.mean(kind, 300) == pytest.approx(one.mean(kind, 300))
        assert other.quantile(kind, 0.9) == one.quantile(kind, 0.9)
    one.observe("chat", 4000)
    other.observe("chat", 4000)
    assert other.mean("chat") == pytest.approx(one.mean("chat"))
