import json
from typing import Any

import pytest
from hypothesis import given

from extproc.apis.embeddings import parse
from extproc.body import ParsedBody
from extproc.errors import ApiError
from tests.extproc.json_bodies import is_sound, requests


def _parse(**fields: Any) -> ParsedBody:
    return parse(json.dumps({"model": "m", "input": "a text", **fields}).encode())


def test_an_embedding_generates_nothing() -> None:
    assert _parse(encoding_format="float", dimensions=8) == ParsedBody("m", ("a text",), max_output_tokens=0)


def test_batches_and_token_ids_are_understood() -> None:
    assert _parse(input=["a", "b"]).texts == ("a", "b")
    assert _parse(input=[1, 2, 3]).known_tokens == 3


@pytest.mark.parametrize(
    ("fields", "param"), [({"input": None}, "input"), ({"input": 7}, "input"), ({"model": ""}, "model")]
)
def test_what_cannot_be_served_names_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        _parse(**fields)

    assert (caught.value.status, caught.value.param) == (400, param)


@given(requests("model", "input"))
def test_any_bytes_are_a_request_or_an_error_for_the_client(body: bytes) -> None:
    try:
        outcome: ParsedBody | ApiError = parse(body)
    except ApiError as error:
        outcome = error

    assert is_sound(outcome)
