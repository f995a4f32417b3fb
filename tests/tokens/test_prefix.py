"""The beginning of a prompt as a chain of hashes."""

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.tokens import prefix
from tidegate.tokens.prefix import BLOCK_BYTES, MAX_BLOCKS, NONE, of_texts, of_token_ids

LONG = "The quick brown fox jumps over the lazy dog. " * 100


def in_common(one: prefix.Prefix, other: prefix.Prefix) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one.hashes, other.hashes, strict=False)))


def test_the_same_prompt_has_the_same_beginning_in_every_process() -> None:
    made = of_texts((LONG,), 1000, ("llama",))
    assert made == of_texts((LONG,), 1000, ("llama",))
    assert len(made.hashes) == len(LONG) // BLOCK_BYTES
    assert made.hashes[0] == 0xE8286CB38DC7C979


def test_a_conversation_that_goes_on_begins_as_it_did() -> None:
    first = of_texts((LONG, "What does it say?"), 1000)
    later = of_texts((LONG, "What does it say?", "It says: " + LONG, "And then?"), 2000)
    assert in_common(first, later) == len(first.hashes)
    assert len(later.hashes) > len(first.hashes)


def test_blocks_behind_a_difference_have_nothing_in_common() -> None:
    changed = LONG[:2000] + "X" + LONG[2001:]
    one, other = of_texts((LONG,), 1000), of_texts((changed,), 1000)
    assert in_common(one, other) == 2000 // BLOCK_BYTES
    assert not set(one.hashes[3:]) & set(other.hashes[3:])


def test_where_one_text_ends_and_the_next_begins_counts() -> None:
    assert in_common(of_texts((LONG[:300], LONG[300:]), 9), of_texts((LONG[:301], LONG[301:]), 9)) == 0


def test_other_keys_are_other_prompts() -> None:
    plain, keyed = of_texts((LONG,), 9), of_texts((LONG,), 9, ("tenant-a",))
    assert in_common(plain, keyed) == 0
    assert in_common(of_texts((LONG,), 9, ("a", "b")), of_texts((LONG,), 9, ("ab", ""))) == 0


@pytest.mark.parametrize("texts", [(), ("",), ("short",), ("x" * (BLOCK_BYTES - 2),)])
def test_a_short_prompt_has_no_block(texts: tuple[str, ...]) -> None:
    assert of_texts(texts, 100) == NONE


def test_a_prompt_without_tokens_has_no_block() -> None:
    assert of_texts((LONG,), 0) == NONE


def test_a_block_stands_for_its_share_of_the_tokens() -> None:
    assert of_texts(("x" * 5119,), 1280).block_tokens == 128
    assert of_texts(("字" * 5119,), 5120).block_tokens == pytest.approx(512 / 3, abs=1)


@pytest.mark.parametrize("letter", ["x", "字"])
def test_the_work_is_bounded_and_a_block_keeps_its_share(letter: str) -> None:
    texts = (letter * 100_000,) * 20
    made = of_texts(texts, 2_000_000)
    assert len(made.hashes) == MAX_BLOCKS
    assert made.block_tokens == pytest.approx(BLOCK_BYTES / len(letter.encode()), abs=1)


def test_of_many_small_texts_no_more_than_the_first_are_looked_at() -> None:
    texts = ("hello there",) * 100_000
    made = of_texts(texts, 300_000)
    assert len(made.hashes) == MAX_BLOCKS
    assert in_common(made, of_texts(texts[:1000], 3000)) == 12_000 // BLOCK_BYTES


def test_text_that_is_not_unicode_is_hashed_as_well() -> None:
    assert len(of_texts(("\ud83d" * 400,), 400).hashes) == 2


@given(st.lists(st.text(max_size=900), max_size=8), st.integers(0, 10_000))
def test_more_text_never_changes_what_came_before(texts: list[str], tokens: int) -> None:
    whole = of_texts((*texts, LONG), tokens + 1)
    part = of_texts(texts, tokens)
    assert whole.hashes[: len(part.hashes)] == part.hashes
    assert len(set(whole.hashes)) == len(whole.hashes)
    assert part.hashes == () or part.block_tokens >= 1


@given(st.lists(st.integers(0, 2**32 - 1), max_size=100), st.integers(1, 40))
def test_token_ids_are_hashed_in_blocks_of_the_engine(ids: list[int], block: int) -> None:
    made = of_token_ids(ids, block, ("m",))
    assert len(made.hashes) == len(ids) // block
    longer = of_token_ids([*ids, *range(block)], block, ("m",))
    assert in_common(made, longer) == len(made.hashes)


@pytest.mark.parametrize("wrong", [-1, 2**32])
def test_what_is_no_token_id_has_no_block(wrong: int) -> None:
    assert of_token_ids([wrong] * 32, 16) == NONE
