import json
from typing import Any

import pytest
from hypothesis import example, given

from extproc.apis.chat_completions import parse
from extproc.body import Chat, ParsedBody
from extproc.conversation import IMAGE_TOKENS
from extproc.errors import ApiError
from tests.extproc.json_bodies import is_sound, requests
from tidegate.tokens.prompt import Conversation, Prompt

HI = [{"role": "user", "content": "hi"}]


def _whole(**fields: Any) -> ParsedBody:
    return parse(json.dumps({"model": "m", "messages": HI, **fields}).encode())


def _parse(**fields: Any) -> ParsedBody:
    return _whole(**fields)._replace(given=None)


def test_the_conversation_is_kept_as_it_came() -> None:
    kept = _whole(tools=[{"x": 1}], chat_template_kwargs={"enable_thinking": False}).given

    assert isinstance(kept, Chat)
    assert (kept.messages, bytes(kept.tools), kept.options) == (HI, b'[{"x": 1}]', {"enable_thinking": False})


def test_a_conversation_is_understood() -> None:
    assert _parse() == ParsedBody("m", ("hi",), 0, 0, None, stream=False, choices=1, conversation=Conversation(1))
    assert _parse().prompt == Prompt(("hi",), Conversation(1), 0)


def test_a_request_with_everything_is_understood() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]

    parsed = _parse(
        tools=tools, stream=True, n=3, max_completion_tokens=50, max_tokens=99, temperature=0.5, logit_bias={}, user="u"
    )

    shape = Conversation(1, schema_characters=len(json.dumps(tools)))
    assert parsed == ParsedBody("m", ("hi", json.dumps(tools)), 0, 0, 50, stream=True, choices=3, conversation=shape)


def test_images_are_counted_beside_the_texts() -> None:
    parsed = _parse(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}])

    assert parsed.prompt == Prompt((), Conversation(1), IMAGE_TOKENS)


def test_functions_of_the_old_kind_count_as_tools_do() -> None:
    assert _parse(functions=[{"name": "f"}]).texts == ("hi", '[{"name": "f"}]')


def test_tools_survive_the_lenient_way() -> None:
    assert _parse(tools=[{"x": float("nan")}], temperature=float("inf")).texts == ("hi", '[{"x": NaN}]')


def test_nulls_count_as_absent() -> None:
    parsed = _parse(tools=None, functions=None, stream=None, n=None, max_tokens=None, max_completion_tokens=None)

    assert parsed == _parse()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_completion_tokens": 0, "max_tokens": 5}, "max_completion_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"tools": {}}, "tools"),
    ],
)
def test_what_cannot_be_served_names_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        _parse(**fields)

    assert (caught.value.status, caught.value.kind, caught.value.param) == (400, "invalid_request_error", param)


def test_an_error_never_repeats_the_prompt() -> None:
    with pytest.raises(ApiError) as caught:
        _parse(messages=[{"role": "user", "content": {"secret": "secret"}}])

    assert b"secret" not in caught.value.body()


@given(requests("model", "messages", "tools", "functions", "max_tokens", "max_completion_tokens", "n", "stream"))
@example(b'{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":{"a":"\\ud800"}}}]}]}')
@example(b'{"model":"m","messages":[{"function_call":{"arguments":' + b'{"a":' * 980 + b"1" + b"}" * 980 + b"}}]}")
def test_any_bytes_are_a_request_or_an_error_for_the_client(body: bytes) -> None:
    try:
        outcome: ParsedBody | ApiError = parse(body)
    except ApiError as error:
        outcome = error

    assert is_sound(outcome)
