"""As much as the time allows is encoded."""

import random
from collections.abc import Callable

import pytest

from tests.tokens.corpus import PATHOLOGICAL, prose
from tidegate.tokens.bounded import LARGE, Tokenizer, count_in_time, encode, recall
from tidegate.tokens.cache import CountCache
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.slicing import LIMIT, utf8_length


class Recorder:
    """A tokenizer of one token a byte that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tokenizer = Tokenizer("o200k_base", self.count)

    def count(self, text: str) -> int:
        self.asked.append(text)
        return utf8_length(text)


def after(questions: int) -> Callable[[], bool]:
    """Say that the time is up from the given question on."""
    left = iter(range(questions))
    return lambda: next(left, None) is None


def test_with_time_enough_every_slice_is_encoded_once() -> None:
    recorder = Recorder()
    count = count_in_time(["a" * 40_000, "b"], recorder.tokenizer, CountCache(9), after(100), random.Random(1))
    assert count == TokenCount(40_001, CountSource.EXACT)
    assert list(map(len, recorder.asked)) == [LIMIT, LIMIT, 40_000 - 2 * LIMIT, 1]


def test_when_the_time_is_up_the_rest_is_sampled_and_what_was_encoded_is_kept() -> None:
    recorder = Recorder()
    # One question to look the text up, then one for each slice.
    count = count_in_time(["a" * 400_000], recorder.tokenizer, CountCache(9), after(4), random.Random(1))
    assert count.source is CountSource.SAMPLED
    assert recorder.asked[:3] == ["a" * LIMIT] * 3
    assert sum(map(len, recorder.asked[3:])) < 100_000
    assert count.tokens == pytest.approx(400_000, rel=0.01)


def test_what_does_not_fit_in_time_is_not_remembered_and_what_does_is() -> None:
    cache = CountCache(9)
    short, long = "a" * 1_000, "b" * 400_000
    count_in_time([short, long], Recorder().tokenizer, cache, after(4), random.Random(1))
    tokens, others = recall([short, long], Recorder().tokenizer, cache)
    assert tokens == 1_000
    assert [other.text for other in others] == [long]


def test_what_is_too_large_is_not_even_begun() -> None:
    recorder = Recorder()
    count = count_in_time(["a " * LARGE], recorder.tokenizer, CountCache(9), after(10**9), random.Random(1))
    assert count.source is CountSource.SAMPLED
    assert sum(map(len, recorder.asked)) < 150_000


def test_what_is_remembered_does_not_make_a_question_large() -> None:
    cache = CountCache(9_999)
    texts = [f"{at} " * 40_000 for at in range(10)]
    for text in texts:
        count_in_time([text], Recorder().tokenizer, cache, after(10**9), random.Random(1))
    recorder = Recorder()
    count = count_in_time([*texts, "and one more"], recorder.tokenizer, cache, after(10**9), random.Random(1))
    assert count == TokenCount(sum(map(len, texts)) + 12, CountSource.EXACT)
    assert recorder.asked == ["and one more"]


def test_a_text_is_encoded_again_under_another_encoding() -> None:
    cache = CountCache(9)
    recorder = Recorder()
    for name in ("o200k_base", "cl100k_base", "o200k_base"):
        tokenizer = Tokenizer(name, recorder.count)
        encode(recall(["x" * 100], tokenizer, cache)[1], tokenizer, cache)
    assert len(recorder.asked) == 2


def test_short_texts_do_not_crowd_out_others() -> None:
    cache = CountCache(9)
    tokenizer = Recorder().tokenizer
    encode(recall(["user", "hi", ""], tokenizer, cache)[1], tokenizer, cache)
    assert len(cache) == 0


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_a_pathological_text_is_counted_exactly_given_time(name: str, o200k: Tokenizer, cl100k: Tokenizer) -> None:
    text = PATHOLOGICAL[name]
    for tokenizer in (o200k, cl100k):
        count = count_in_time([text], tokenizer, CountCache(0), after(10**9), random.Random(1))
        assert count.source is CountSource.EXACT
        assert 1 <= count.tokens <= utf8_length(text)


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_a_pathological_text_is_sampled_when_there_is_no_time(name: str, o200k: Tokenizer, cl100k: Tokenizer) -> None:
    text = PATHOLOGICAL[name]
    for tokenizer in (o200k, cl100k):
        count = count_in_time([text], tokenizer, CountCache(0), after(0), random.Random(1))
        assert count.source is CountSource.SAMPLED
        assert 1 <= count.tokens <= utf8_length(text)


def test_a_long_run_of_one_letter_is_counted_as_tiktoken_counts_it(o200k: Tokenizer) -> None:
    count = count_in_time(["a" * 1_000_000], o200k, CountCache(0), after(10**9), random.Random(1))
    assert count.tokens == 125_000


def test_cutting_the_time_short_changes_the_count_by_little(o200k: Tokenizer) -> None:
    text = prose(900_000)
    exact = count_in_time([text], o200k, CountCache(0), after(10**9), random.Random(1))
    for questions in (0, 5, 30):
        cut = count_in_time([text], o200k, CountCache(0), after(questions), random.Random(1))
        assert cut.source is CountSource.SAMPLED
        assert cut.tokens == pytest.approx(exact.tokens, rel=0.02)
