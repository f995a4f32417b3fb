import json
from typing import Any

import pytest
from hypothesis import given

from extproc.apis.responses import parse
from extproc.body import MAX_ITEMS, ParsedBody
from extproc.conversation import IMAGE_TOKENS
from extproc.errors import ApiError
from tests.extproc.json_bodies import is_sound, requests
from tidegate.tokens.prompt import Conversation


def _parse(**fields: Any) -> ParsedBody:
    return parse(json.dumps({"model": "m", "input": "hi", **fields}).encode())


def test_a_text_is_a_message() -> None:
    assert _parse() == ParsedBody("m", ("hi",), conversation=Conversation(1))


def test_items_count_as_messages_with_their_parts() -> None:
    parts = [{"type": "input_text", "text": "what is it?"}, {"type": "input_image", "image_url": "https://x/y.png"}]
    parsed = _parse(
        input=[
            {"role": "developer", "content": "be brief"},
            {"type": "message", "role": "user", "content": parts},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a cat"}]},
        ]
    )

    assert parsed.texts == ("be brief", "what is it?", "a cat")
    assert parsed.overhead_tokens == IMAGE_TOKENS
    assert parsed.conversation == Conversation(3, instructions=1)


def test_calls_their_results_and_reasoning_are_part_of_the_prompt() -> None:
    parsed = _parse(
        input=[
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "think"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "call_id": "1", "output": "42"},
            {"type": "local_shell_call_output", "output": {"stdout": "not looked at"}},
            {"type": "item_reference", "id": "msg_1"},
        ]
    )

    assert parsed.texts == ("think", "f", '{"a": 1}', "42")


def test_instructions_tools_the_limit_and_the_flag_are_read() -> None:
    tools = [{"type": "function", "name": "f", "parameters": {}}]

    parsed = _parse(instructions="be kind", tools=tools, max_output_tokens=50, stream=True)

    shape = Conversation(2, instructions=1, schema_characters=len(json.dumps(tools)))
    assert parsed == ParsedBody("m", ("hi", json.dumps(tools), "be kind"), 0, 0, 50, stream=True, conversation=shape)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 7}, "input"),
        ({"input": ["hi"]}, "input[0]"),
        ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
        ({"input": [{}, {"role": "user", "content": ["hi", 7]}]}, "input[1].content[1]"),
        ({"input": [{}] * (MAX_ITEMS + 1)}, "input"),
        ({"tools": {}}, "tools"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"background": True}, "background"),
        ({"model": None}, "model"),
    ],
)
def test_what_cannot_be_served_names_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        _parse(**fields)

    assert (caught.value.status, caught.value.param) == (400, param)


@given(requests("model", "input", "instructions", "tools", "max_output_tokens", "background", "stream"))
def test_any_bytes_are_a_request_or_an_error_for_the_client(body: bytes) -> None:
    try:
        outcome: ParsedBody | ApiError = parse(body)
    except ApiError as error:
        outcome = error

    assert is_sound(outcome)
