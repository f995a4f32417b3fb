import json

import pytest
from hypothesis import given

from extproc.apis.count_tokens import parse
from extproc.body import ParsedBody
from extproc.errors import ApiError
from tests.extproc.json_bodies import is_sound, requests


def test_a_count_of_tokens_is_no_load() -> None:
    body = json.dumps({"model": "m", "system": "s", "messages": [{"role": "user", "content": "word " * 1000}]})

    assert parse(body.encode()) == ParsedBody("m", (), max_output_tokens=0)


@pytest.mark.parametrize("messages", ["", ', "messages": null', ', "messages":  null '])
def test_messages_are_needed(messages: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse(f'{{"model": "m"{messages}}}'.encode())

    assert caught.value.param == "messages"


@given(requests("model", "messages"))
def test_any_bytes_are_a_request_or_an_error_for_the_client(body: bytes) -> None:
    try:
        outcome: ParsedBody | ApiError = parse(body)
    except ApiError as error:
        outcome = error

    assert is_sound(outcome)
