"""Slices are small, lose nothing, and add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokens.corpus import ORDINARY, PATHOLOGICAL
from tidegate.tokens.bounded import Tokenizer
from tidegate.tokens.slicing import LIMIT, slices, utf8_length

ANY_TEXT = st.text(st.characters(exclude_categories=()) | st.sampled_from("ab \n,"), max_size=400)


@given(ANY_TEXT, st.integers(4, 64))
def test_slices_joined_are_the_text(text: str, limit: int) -> None:
    assert "".join(slices(text, limit)) == text


@given(ANY_TEXT, st.integers(4, 64))
def test_no_slice_is_empty_or_larger_than_the_limit(text: str, limit: int) -> None:
    assert all(1 <= utf8_length(piece) <= limit for piece in slices(text, limit))


@given(ANY_TEXT, st.integers(8, 64))
def test_slices_are_about_half_full_at_least(text: str, limit: int) -> None:
    *full, _last = [*slices(text, limit), ""]
    # Four bytes for a character that did not fit, and half of the rest for a safe place.
    assert all(4 * len(piece) >= (limit - 4) // 8 for piece in full[:-1])


@given(ANY_TEXT)
def test_the_length_is_that_of_the_encoded_text(text: str) -> None:
    assert utf8_length(text) == len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two three four", ["one two three", " four"]),
        ("one two a\nthree four five", ["one two a\n", "three four five"]),
        ("one, two; three: four", ["one, two; three", ": four"]),
        ("abcdefghijklmnopqrst", ["abcdefghijklmno", "pqrst"]),
        ("a b", ["a b"]),
    ],
)
def test_cuts_fall_where_tokens_end(text: str, expected: list[str]) -> None:
    assert list(slices(text, 15)) == expected


@pytest.mark.parametrize("kind", ORDINARY)
def test_slices_add_up_to_the_count_of_the_whole(kind: str, o200k: Tokenizer, cl100k: Tokenizer) -> None:
    text = ORDINARY[kind](150_000)
    for tokenizer in (o200k, cl100k):
        whole = tokenizer.count(text)
        assert abs(sum(map(tokenizer.count, slices(text))) - whole) <= max(2, whole * 0.0005)


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_pathological_texts_are_cut_into_slices_too(name: str) -> None:
    text = PATHOLOGICAL[name]
    pieces = list(slices(text))
    assert "".join(pieces) == text
    assert max(map(utf8_length, pieces)) <= LIMIT
    assert len(pieces) <= utf8_length(text) // (LIMIT // 2 - 4) + 1
