"""Estimates are near the truth, and never above the number of bytes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokens.corpus import ORDINARY, PATHOLOGICAL, blob, prose
from tidegate.tokens.bounded import Tokenizer
from tidegate.tokens.estimate import WINDOW, WINDOWS, by_bytes, by_sample
from tidegate.tokens.slicing import slices, utf8_length

TEXTS = st.lists(st.text(st.characters(exclude_categories=()), max_size=300), max_size=8)


def whole(text: str, tokenizer: Tokenizer) -> int:
    return sum(map(tokenizer.count, slices(text)))


@pytest.mark.parametrize("kind", ORDINARY)
def test_a_sample_is_within_two_percent_on_text_of_one_kind(kind: str, o200k: Tokenizer, cl100k: Tokenizer) -> None:
    text = ORDINARY[kind](400_000)
    for tokenizer in (o200k, cl100k):
        sampled = by_sample([text], tokenizer.count, random.Random(5))
        assert sampled == pytest.approx(whole(text, tokenizer), rel=0.02)


def test_a_sample_is_within_five_percent_on_mixed_text_whose_beginning_misleads(o200k: Tokenizer) -> None:
    texts = [blob(30_000), *(prose(20_000 + at) for at in range(40)), blob(200_000), prose(300_000)]
    true = sum(whole(text, o200k) for text in texts)
    assert by_sample(texts, o200k.count, random.Random(5)) == pytest.approx(true, rel=0.05)


def test_a_sample_of_many_short_texts_is_near_the_truth(o200k: Tokenizer) -> None:
    texts = [prose(20 + at % 40) for at in range(20_000)]
    true = sum(map(o200k.count, texts))
    assert by_sample(texts, o200k.count, random.Random(5)) == pytest.approx(true, rel=0.05)


@given(TEXTS, st.integers())
def test_a_sample_is_never_above_the_number_of_bytes(texts: list[str], seed: int) -> None:
    # The most that a byte-level tokenizer can say.
    sampled = by_sample(texts, utf8_length, random.Random(seed))
    assert 0 <= sampled <= sum(map(utf8_length, texts))


@given(TEXTS)
def test_the_length_suggests_no_more_tokens_than_bytes(texts: list[str]) -> None:
    assert 0 <= by_bytes(texts) <= sum(map(utf8_length, texts))
    assert (by_bytes(texts) > 0) == any(texts)


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_the_length_suggests_a_quarter_of_the_bytes(name: str) -> None:
    text = PATHOLOGICAL[name]
    assert by_bytes([text]) == pytest.approx(utf8_length(text) / 4, rel=0.2)


def test_nothing_has_no_tokens() -> None:
    assert by_bytes([]) == by_bytes(["", ""]) == 0
    assert by_sample([], len, random.Random(1)) == by_sample(["", ""], len, random.Random(1)) == 0


@pytest.mark.parametrize("texts", [["a" * 20_000_000], ["ab" * 100] * 50_000, ["a"] * 500_000])
def test_a_sample_looks_at_little_and_calls_the_tokenizer_a_few_times(texts: list[str]) -> None:
    seen: list[int] = []

    def count(text: str) -> int:
        seen.append(len(text))
        return len(text)

    by_sample(texts, count, random.Random(1))
    assert sum(seen) <= WINDOWS * (WINDOW + 64)
    assert len(seen) <= 12


def test_a_sample_is_at_most_a_quarter_of_the_text() -> None:
    seen: list[int] = []

    def count(text: str) -> int:
        seen.append(len(text))
        return len(text)

    by_sample(["a" * 50_000], count, random.Random(1))
    assert sum(seen) <= 50_000 / 4 + WINDOW


def test_two_draws_look_at_different_places() -> None:
    text = "".join(map(str, range(200_000)))

    def seen(seed: int) -> list[str]:
        pieces: list[str] = []
        by_sample([text], lambda piece: pieces.append(piece) or len(piece), random.Random(seed))  # type: ignore[func-returns-value]
        return pieces

    assert seen(1) == seen(1) != seen(2)
