"""Speech and images asked for in JSON."""

import json
from typing import Any

import pytest
from hypothesis import given

from extproc.apis import APIS
from extproc.body import ParsedBody
from extproc.errors import ApiError
from tests.extproc.json_bodies import is_sound, requests

SPEECH, IMAGES = "/v1/audio/speech", "/v1/images/generations"


def _parse(path: str, **fields: Any) -> ParsedBody:
    parse = APIS[path].parse
    assert parse is not None
    return parse(json.dumps(fields).encode())


def test_what_is_spoken_and_how_is_the_prompt() -> None:
    assert _parse(SPEECH, model="tts", input="hello", voice="alloy") == ParsedBody("tts", ("hello",))
    assert _parse(SPEECH, input="hello", instructions="slowly").texts == ("hello", "slowly")
    assert _parse(SPEECH, input="hello", stream_format="sse").stream


def test_images_count_by_their_number() -> None:
    parsed = _parse(IMAGES, model="m", prompt="a cat", n=3)

    assert (parsed.texts, parsed.choices, parsed.max_output_tokens) == (("a cat",), 3, 1_056)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (SPEECH, {}, "input"),
        (SPEECH, {"input": ["a"]}, "input"),
        (SPEECH, {"input": "a", "model": 7}, "model"),
        (IMAGES, {}, "prompt"),
        (IMAGES, {"prompt": {}}, "prompt"),
        (IMAGES, {"prompt": "a", "n": 0}, "n"),
    ],
)
def test_what_is_missing_or_wrong_is_named(path: str, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        _parse(path, **fields)

    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize("path", [SPEECH, IMAGES])
@given(body=requests("model", "input", "prompt", "instructions", "n", "stream"))
def test_any_json_is_a_request_or_an_error_for_the_client(path: str, body: bytes) -> None:
    parse = APIS[path].parse
    assert parse is not None
    try:
        outcome: ParsedBody | ApiError = parse(body)
    except ApiError as error:
        outcome = error

    assert is_sound(outcome, named=False)
