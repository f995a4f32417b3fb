from typing import Any

import msgspec
import pytest
from hypothesis import given

from extproc.errors import ApiError
from extproc.fields import decode
from tests.extproc.json_bodies import values


class _Shape(msgspec.Struct):
    model: Any = None
    limit: Any = msgspec.field(default=7, name="max-tokens")
    tools: msgspec.Raw = msgspec.Raw()


def test_fields_come_out_under_their_names_and_with_their_defaults() -> None:
    decoded = decode(b'{"model": {"a": [1]}, "tools": [ 1 ], "x": 2}', _Shape)

    assert isinstance(decoded, _Shape)
    assert (decoded.model, decoded.limit, bytes(decoded.tools)) == ({"a": [1]}, 7, b"[ 1 ]")
    assert decode(b'{"max-tokens": null}', _Shape).limit is None


def test_a_field_that_is_given_twice_is_named_as_the_client_names_it() -> None:
    with pytest.raises(ApiError) as caught:
        decode(b'{"max-tokens": 1, "max-tokens": 1}', _Shape)

    assert (caught.value.param, caught.value.code) == ("max-tokens", "duplicate_parameter")


def test_of_a_field_that_is_kept_as_text_the_last_counts() -> None:
    assert bytes(decode(b'{"tools": 1, "tools": 2}', _Shape).tools) == b"2"


@given(values)
def test_a_value_comes_out_as_without_the_check(value: Any) -> None:
    try:
        body = msgspec.json.encode({"model": value})
        plain = msgspec.json.decode(body)["model"]
    except (msgspec.DecodeError, UnicodeEncodeError):
        return

    assert decode(body, _Shape).model == plain
