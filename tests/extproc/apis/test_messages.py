import json
from typing import Any

import pytest
from hypothesis import given

from extproc.apis.messages import parse
from extproc.body import ParsedBody
from extproc.errors import ApiError
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import POST, ask
from tests.extproc.json_bodies import is_sound, requests
from tidegate.tokens.prompt import Conversation

HI = [{"role": "user", "content": "hi"}]
MESSAGES = {**POST, ":path": "/v1/messages"}


def _parse(**fields: Any) -> ParsedBody:
    return parse(json.dumps({"model": "m", "max_tokens": 9, "messages": HI, **fields}).encode())


def test_a_conversation_is_understood() -> None:
    assert _parse() == ParsedBody("m", ("hi",), 0, 0, 9, conversation=Conversation(1))


def test_a_request_with_everything_is_understood() -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}}]

    parsed = _parse(system=[{"type": "text", "text": "be brief"}], tools=tools, stream=True, temperature=1)

    shape = Conversation(2, instructions=1, schema_characters=len(json.dumps(tools)))
    assert parsed == ParsedBody("m", ("be brief", "hi", json.dumps(tools)), 0, 0, 9, stream=True, conversation=shape)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": None}, "messages"),
        ({"system": 7}, "system"),
        ({"tools": "f"}, "tools"),
        ({"model": ""}, "model"),
    ],
)
def test_what_cannot_be_served_names_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        _parse(**fields)

    assert (caught.value.status, caught.value.param) == (400, param)


async def test_its_answers_tell_usage_in_their_own_form() -> None:
    result = await ask(FakeDesk(), MESSAGES, json.dumps({"model": "m", "max_tokens": 9, "messages": HI}).encode())

    assert (result.kind, result.metadata["tidegate"]["usage"]) == ("routed", "messages")


@pytest.mark.parametrize(
    ("headers", "body", "status", "kind"),
    [
        ({}, b"{", 400, "invalid_request_error"),
        ({}, b'{"model": "missing", "max_tokens": 9, "messages": [{"content": "a"}]}', 404, "not_found_error"),
        ({}, b'{"model": "empty", "max_tokens": 9, "messages": [{"content": "a"}]}', 503, "overloaded_error"),
        ({":method": "GET"}, b"", 405, "invalid_request_error"),
        ({":path": "/v1/messages/batches"}, b"", 404, "not_found_error"),
        ({":path": "/v1/messages/count_tokens"}, b"[]", 400, "invalid_request_error"),
    ],
)
async def test_every_error_has_anthropics_form(headers: dict[str, str], body: bytes, status: int, kind: str) -> None:
    result = await ask(FakeDesk(), {**MESSAGES, **headers}, body)

    answer = json.loads(result.body)
    assert (result.status, answer["type"], answer["error"]["type"]) == (status, "error", kind)
    assert answer["error"].keys() == {"type", "message"}


async def test_a_neighbouring_path_has_openais_form() -> None:
    result = await ask(FakeDesk(), {**POST, ":path": "/v1/messages_of_old"}, b"")

    assert result.fault["code"] == "unknown_url"


@given(requests("model", "system", "messages", "tools", "max_tokens", "stream"))
def test_any_bytes_are_a_request_or_an_error_for_the_client(body: bytes) -> None:
    try:
        outcome: ParsedBody | ApiError = parse(body)
    except ApiError as error:
        outcome = error

    assert is_sound(outcome)
