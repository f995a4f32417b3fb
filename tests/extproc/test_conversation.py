import socket
from typing import Any

import msgspec
import pytest

from extproc.body import MAX_ITEMS
from extproc.conversation import FILE_TOKENS, IMAGE_TOKENS, VIDEO_TOKENS, of_messages, of_schemas
from extproc.errors import ApiError
from tests.extproc.image_files import data_url, in_base64, png
from tidegate.tokens.prompt import Conversation


def _one(content: Any, **fields: Any) -> tuple[list[str], int]:
    """The texts of one message, and its tokens besides."""
    texts, tokens, _ = of_messages([{"role": "user", "content": content, **fields}])
    return texts, tokens


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_shape_of_a_conversation_is_reported_for_the_chat_template(role: str) -> None:
    user, instruction = {"role": "user", "content": "hi"}, {"role": role, "content": "be brief"}

    assert of_messages([user]) == (["hi"], 0, Conversation(messages=1))
    assert of_messages([instruction, user]) == (["be brief", "hi"], 0, Conversation(messages=2, instructions=1))


def test_a_name_is_a_text_and_part_of_the_shape() -> None:
    user = {"role": "user", "content": "hi", "name": "ada"}

    assert of_messages([user, user]) == (["hi", "ada"] * 2, 0, Conversation(messages=2, names=2))


@pytest.mark.parametrize("role", [None, 7, ["system"], {"system": 1}, "System"])
def test_a_role_that_is_none_instructs_nobody(role: Any) -> None:
    assert of_messages([{"role": role}]).shape == Conversation(messages=1)


@pytest.mark.parametrize("content", [None, "", [], [{}], [{"type": "text"}], [{"type": "text", "text": None}]])
def test_content_that_is_empty_is_no_error(content: Any) -> None:
    texts, tokens = _one(content)

    assert ("".join(texts), tokens) == ("", 0)


def test_a_message_without_content_or_role_counts_as_a_message() -> None:
    assert of_messages([{}]) == ([], 0, Conversation(messages=1))


def test_text_parts_of_every_spelling_are_counted() -> None:
    parts = [
        "plain",
        {"type": "text", "text": "a"},
        {"type": "input_text", "text": "b"},
        {"type": "refusal", "refusal": "no"},
        {"type": "thinking", "thinking": "hm"},
        {"type": "something new", "content": "c"},
    ]

    assert _one(parts) == (["plain", "a", "b", "no", "hm"], 0)


PIXELS = "iVBORw0KGgo=" * 10_000


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXELS}"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.png", "detail": "high"}},
        {"type": "image_url", "image_url": "https://example.org/cat.png"},
        {"type": "input_image", "image_url": PIXELS},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXELS}},
    ],
)
def test_an_image_of_unknown_size_is_a_flat_estimate_and_never_text(part: dict[str, Any]) -> None:
    assert _one([{"type": "text", "text": "what is this?"}, part]) == (["what is this?"], IMAGE_TOKENS)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": data_url(png(512, 512))}},
        {"type": "input_image", "image_url": data_url(png(512, 512))},
        {"type": "image", "source": {"type": "base64", "data": in_base64(png(512, 512))}},
    ],
)
def test_an_image_that_is_here_counts_by_its_tiles_as_the_model_has_them(part: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": [part]}]

    assert of_messages(messages).tokens == 85 + 170
    assert of_messages(messages, "gpt-5").tokens == 70 + 140
    assert of_messages(messages, "gpt-4.1-mini").tokens == 415


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "https://x.org/a.png"]
)
def test_a_url_is_never_fetched(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("something was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("builtins.open", refuse)

    assert _one([{"type": "image_url", "image_url": {"url": url}}]) == ([], IMAGE_TOKENS)


def test_few_details_cost_the_base_alone() -> None:
    low = {"url": "https://example.org/cat.png", "detail": "low"}

    assert _one([{"type": "image_url", "image_url": low}]) == ([], 85)
    assert _one([{"type": "input_image", "image_url": "https://example.org/cat.png", "detail": "low"}]) == ([], 85)


def test_audio_is_estimated_by_its_size() -> None:
    part = {"type": "input_audio", "input_audio": {"data": "A" * 160_000, "format": "wav"}}

    assert _one([part]) == ([], 100)
    assert _one([{"type": "input_audio", "input_audio": {"data": ""}}]) == ([], 1)


def test_media_behind_a_reference_is_a_flat_estimate() -> None:
    assert _one([{"type": "file", "file": {"file_id": "https://example.org/a.pdf"}}]) == ([], FILE_TOKENS)
    assert _one([{"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}}]) == ([], VIDEO_TOKENS)
    assert _one([{"type": ["image_url"]}]) == ([], 0)


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]},
        {"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
        {"function_call": {"name": "f", "arguments": '{"a": 1}'}},
    ],
)
def test_calls_in_the_history_are_counted(message: dict[str, Any]) -> None:
    assert of_messages([{"role": "assistant", "content": None, **message}]).texts == ["f", '{"a": 1}']


@pytest.mark.parametrize(
    "calls", [None, [], "x", [None], [{"function": None}], [{"name": "t", "args": {}, "id": "x"}], [{"function": {}}]]
)
def test_odd_calls_in_the_history_are_no_error(calls: Any) -> None:
    assert _one("hi", tool_calls=calls) == (["hi"], 0)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ("hi", "messages"),
        ({"role": "user"}, "messages"),
        ([], "messages"),
        (["hi"], "messages[0]"),
        ([{"content": "hi"}, None], "messages[1]"),
        ([{"content": 7}], "messages[0].content"),
        ([{"content": {"text": "hi"}}], "messages[0].content"),
        ([{"content": ["hi", 7]}], "messages[0].content[1]"),
    ],
)
def test_what_is_no_conversation_is_refused_by_its_place(messages: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        of_messages(messages)

    assert (caught.value.status, caught.value.param) == (400, param)
    assert f"'{param}'" in caught.value.message


def test_schemas_count_as_the_json_that_was_sent() -> None:
    tools = msgspec.Raw(b' [{"type": "function",  "function": {"name": "f"}}] ')

    assert of_schemas(tools=tools, functions=msgspec.Raw(b"null")) == [
        '[{"type": "function",  "function": {"name": "f"}}]'
    ]
    assert of_schemas(tools=msgspec.Raw()) == []


@pytest.mark.parametrize("raw", [b"{}", b'"x"', b"7", b"true"])
def test_schemas_that_are_no_array_are_refused(raw: bytes) -> None:
    with pytest.raises(ApiError, match="'tools' must be an array"):
        of_schemas(tools=msgspec.Raw(raw))


def test_more_messages_parts_and_calls_than_can_be_looked_at_are_refused() -> None:
    half = MAX_ITEMS // 2 - 1
    parts: dict[str, Any] = {"content": ["a"] * half}
    calls: dict[str, Any] = {"tool_calls": [{}] * half}
    assert len(of_messages([parts, calls]).texts) == half
    too_many: list[list[dict[str, Any]]] = [[parts, calls, {}], [parts, parts, {}], [{}] * (MAX_ITEMS + 1)]
    for messages in too_many:
        with pytest.raises(ApiError, match=f"at most {MAX_ITEMS} messages") as caught:
            of_messages(messages)
        assert (caught.value.status, caught.value.param) == (400, "messages")
