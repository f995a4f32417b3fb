import contextlib
from typing import Any

import pytest
from hypothesis import given

from extproc.blocks import of_conversation
from extproc.body import MAX_ITEMS
from extproc.conversation import FILE_TOKENS, IMAGE_TOKENS
from extproc.errors import ApiError
from tests.extproc.image_files import in_base64, png
from tests.extproc.json_bodies import values
from tidegate.tokens.prompt import Conversation


def _of(content: Any, system: Any = None) -> tuple[list[str], int]:
    texts, tokens, shape = of_conversation(system, [{"role": "user", "content": content}])
    assert shape == (Conversation(1) if system is None else Conversation(2, instructions=1))
    return texts, tokens


def test_the_system_prompt_is_a_message_of_its_own() -> None:
    assert _of("hi", "be brief") == (["be brief", "hi"], 0)
    assert _of("hi", [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]) == (["be", "brief", "hi"], 0)


@pytest.mark.parametrize(
    ("block", "texts", "tokens"),
    [
        ({"type": "text", "text": "a"}, ["a"], 0),
        ({"type": "image", "source": {"type": "base64", "data": "QUJD" * 1000}}, [], IMAGE_TOKENS),
        ({"type": "document", "source": {"type": "text", "data": "a page"}}, ["a page"], 0),
        ({"type": "document", "source": {"type": "base64", "data": "QUJD" * 1000}}, [], FILE_TOKENS),
        ({"type": "document"}, [], FILE_TOKENS),
        ({"type": "tool_use", "name": "f", "input": {"a": "ü"}}, ["f", '{"a": "ü"}'], 0),
        ({"type": "tool_result", "content": "42"}, ["42"], 0),
        ({"type": "tool_result"}, [], 0),
        ({"type": "tool_result", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}, ["a"], IMAGE_TOKENS),
        ({"type": "thinking", "thinking": "dropped"}, [], 0),
        ({"type": "invented", "text": "a"}, [], 0),
        ({"text": "a"}, [], 0),
        ({"type": ["text"]}, [], 0),
    ],
)
def test_every_kind_of_block_counts_as_what_it_is(block: dict[str, Any], texts: list[str], tokens: int) -> None:
    assert _of([block]) == (texts, tokens)


def test_an_image_counts_by_its_size_as_claude_counts_it() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": in_base64(png(280, 560))}}
    inside = {"type": "tool_result", "content": [image]}

    assert of_conversation(None, [{"content": [image, inside]}], "claude-opus-4-1").tokens == 2 * 10 * 20
    assert of_conversation(None, [{"content": [{"type": "image"}]}], "claude-opus-4-1").tokens == 1369


def test_a_result_within_a_result_is_not_followed() -> None:
    inner: dict[str, Any] = {"type": "tool_result", "content": "deep"}
    for _ in range(50):
        inner = {"type": "tool_result", "content": [inner]}

    assert _of([inner]) == ([], 0)


@pytest.mark.parametrize(
    ("system", "messages", "param"),
    [
        (None, None, "messages"),
        (None, [], "messages"),
        (None, "hi", "messages"),
        (None, ["hi"], "messages[0]"),
        (None, [{"content": 7}], "messages[0].content"),
        (None, [{"content": ["hi"]}], "messages[0].content[0]"),
        (
            None,
            [{"content": [{"type": "tool_result", "content": [{}, 7]}]}],
            "messages[0].content[0].content[1]",
        ),
        ({}, [{}], "system"),
        ([7], [{}], "system[0]"),
        (None, [{}] * (MAX_ITEMS + 1), "messages"),
        (None, [{"content": [{}] * MAX_ITEMS}], "messages"),
    ],
)
def test_what_is_no_conversation_is_refused_by_its_place(system: Any, messages: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        of_conversation(system, messages)

    assert caught.value.param == param


@given(values, values)
def test_anything_is_a_conversation_or_an_error(system: Any, content: Any) -> None:
    texts: list[str] = []
    tokens = 0
    with contextlib.suppress(ApiError):
        texts, tokens = _of(content, system)

    assert all(isinstance(text, str) for text in texts)
    assert tokens >= 0
