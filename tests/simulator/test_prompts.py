"""Four bytes stand for a token, and equal beginnings have equal keys."""

import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.simulator.prompts import (
    TOKEN_BYTES,
    Answer,
    block_keys,
    chat_prompt,
    draw_output_tokens,
    plain_prompt,
)


def _tokens(prompt: bytes) -> int:
    assert len(prompt) % TOKEN_BYTES == 0
    return len(prompt) // TOKEN_BYTES


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("four", 1), ("fives", 2), ("äö", 1), ("äöü", 2)])
def test_a_text_has_a_token_for_every_four_bytes(text: str, tokens: int) -> None:
    assert _tokens(plain_prompt(text)) == tokens


def test_token_ids_count_one_each() -> None:
    assert _tokens(plain_prompt([1, 2, 128_255, -1, 2**40])) == 5


def test_a_chat_adds_the_tokens_of_its_template() -> None:
    assert _tokens(chat_prompt([{"role": "user", "content": "hello"}])) == 1 + (4 + 2 + 1) + 4


def test_every_message_and_tool_of_a_chat_counts() -> None:
    one = chat_prompt([{"role": "user", "content": "hi"}])
    assert _tokens(chat_prompt([{"role": "system", "content": "hi"}, {"role": "user", "content": "hi"}])) > _tokens(one)
    assert _tokens(chat_prompt([{"role": "user", "content": "hi"}], [{"type": "function"}])) > _tokens(one)
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "call"}]}
    assert _tokens(chat_prompt([call])) > _tokens(chat_prompt([{"role": "assistant", "content": None}]))


def test_text_parts_count_as_their_text_and_images_as_nothing() -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "lo"}]
    assert chat_prompt([{"role": "user", "content": parts}]) == chat_prompt([{"role": "user", "content": "hello"}])


_VALUES = st.sampled_from(["", "a", "é{", "five5", None])


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["role", "content", "tool_calls"]), _VALUES), max_size=4))
def test_odd_messages_still_make_whole_tokens(messages: list[dict[str, str | None]]) -> None:
    assert _tokens(chat_prompt(messages)) >= 5


def test_lone_surrogates_do_not_break_the_count() -> None:
    assert _tokens(plain_prompt("\ud800")) == 1


@settings(deadline=None)
@given(st.binary(max_size=600), st.binary(max_size=300), st.binary(max_size=300))
def test_keys_agree_exactly_as_far_as_the_tokens_do(start: bytes, one: bytes, other: bytes) -> None:
    size = 64
    first, second = start + one, start + other
    shared = 0
    while (shared + 1) * size <= min(len(first), len(second)) and (
        first[: (shared + 1) * size] == second[: (shared + 1) * size]
    ):
        shared += 1
    keys, others = block_keys(first), block_keys(second)
    assert len(keys) == len(first) // size
    agree = [key == other_key for key, other_key in zip(keys, others, strict=False)]
    assert agree == [at < shared for at in range(len(agree))]


def test_the_same_block_after_another_beginning_has_another_key() -> None:
    block = b"x" * 64
    assert block_keys(block + block)[1] != block_keys(b"y" * 64 + block)[1]


def test_an_answer_has_a_word_for_every_token() -> None:
    answer = Answer(b"prompt", 0, 5, ends=False)
    assert answer.text() == "".join(answer.word(at) for at in range(5))
    assert len(answer.text().split()) == 5
    assert len(answer.encoded()) == 5 * TOKEN_BYTES


def test_the_token_that_ends_an_answer_has_no_text() -> None:
    answer = Answer(b"prompt", 0, 5, ends=True)
    assert answer.word(4) == ""
    assert len(answer.text().split()) == 4
    assert len(answer.encoded()) == 5 * TOKEN_BYTES


def test_the_same_prompt_gets_the_same_answer_and_another_choice_another() -> None:
    assert Answer(b"prompt", 0, 9, ends=False).text() == Answer(b"prompt", 0, 9, ends=False).text()
    assert Answer(b"prompt", 0, 9, ends=False).text() != Answer(b"prompt", 1, 9, ends=False).text()


def test_an_answer_sent_back_in_the_next_turn_is_the_prefix_that_was_generated() -> None:
    question = {"role": "user", "content": "how are you today?"}
    prompt = chat_prompt([question])
    answer = Answer(prompt, 0, 40, ends=True)
    reply = {"role": "assistant", "content": answer.text()}
    following = chat_prompt([question, reply, {"role": "user", "content": "and tomorrow?"}])
    assert following.startswith(prompt + answer.encoded())


def test_drawn_lengths_have_the_mean_asked_for_and_are_the_same_for_a_seed() -> None:
    rng = random.Random(7)
    drawn = [draw_output_tokens(200.0, rng) for _ in range(20_000)]
    assert statistics.fmean(drawn) == pytest.approx(200.0, rel=0.03)
    assert min(drawn) >= 1
    again = random.Random(7)
    assert [draw_output_tokens(200.0, again) for _ in range(10)] == drawn[:10]
