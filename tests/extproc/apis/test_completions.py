import json
from typing import Any

import pytest
from hypothesis import given

from extproc.apis.completions import parse
from extproc.body import ParsedBody
from extproc.errors import ApiError
from tests.extproc.json_bodies import is_sound, requests


def _parse(**fields: Any) -> ParsedBody:
    return parse(json.dumps({"model": "m", "prompt": "once", **fields}).encode())


def test_a_prompt_is_understood() -> None:
    assert _parse() == ParsedBody("m", ("once",), given="once")


def test_token_ids_are_counted_and_not_tokenised() -> None:
    parsed = _parse(prompt=[[1, 2, 3], [4]])

    assert (parsed.texts, parsed.known_tokens) == ((), 4)


def test_a_single_prompt_is_kept_as_it_came() -> None:
    assert _parse(prompt=[1, 2, 3]).given == [1, 2, 3]
    assert _parse(prompt=["a", "b"]).given is None


def test_each_prompt_of_a_batch_has_its_own_choices() -> None:
    assert _parse(prompt=["a", "b", "c"], n=2).choices == 6
    assert _parse(n=2, best_of=4).choices == 4


def test_a_suffix_is_part_of_the_prompt() -> None:
    assert _parse(suffix="the end").texts == ("once", "the end")
    assert _parse(suffix=None).texts == ("once",)


def test_the_limit_and_the_flag_are_read() -> None:
    parsed = _parse(max_tokens=16, stream=True)

    assert (parsed.max_output_tokens, parsed.stream) == (16, True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"best_of": -1}, "best_of"),
        ({"model": 1}, "model"),
    ],
)
def test_what_cannot_be_served_names_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        _parse(**fields)

    assert (caught.value.status, caught.value.param) == (400, param)


@given(requests("model", "prompt", "suffix", "max_tokens", "n", "best_of", "stream"))
def test_any_bytes_are_a_request_or_an_error_for_the_client(body: bytes) -> None:
    try:
        outcome: ParsedBody | ApiError = parse(body)
    except ApiError as error:
        outcome = error

    assert is_sound(outcome)
