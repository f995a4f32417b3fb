import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc import body as subject
from extproc.body import ParsedBody, choice_count, model_name, read, token_limit, truth, whole_number
from extproc.errors import ApiError


class _Fields(msgspec.Struct):
    model: Any = None
    text: Any = None
    raw: msgspec.Raw = msgspec.Raw()


def _understand(fields: _Fields) -> ParsedBody:
    return ParsedBody(model_name(fields.model), (str(fields.text), bytes(fields.raw).decode()))


def _read(body: bytes) -> ParsedBody:
    return read(body, _Fields, _understand)


def _error(body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        _read(body)
    return caught.value


def test_an_ordinary_body_is_read() -> None:
    parsed = _read(b'{"model": "m", "text": "h\\u00e9llo", "raw": [{"a": 1}], "unknown": {"x": []}}')

    assert parsed == ParsedBody("m", ("héllo", '[{"a": 1}]'))


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m", "text": "t", "raw": [1], "x": NaN}',
        b'{"model": "m", "text": "t", "raw": [1], "x": [Infinity, -Infinity]}',
        b'{"model": "m", "text": "t", "raw": [1], "x": "\\ud83d"}',
        b'\xef\xbb\xbf{"model": "m", "text": "t", "raw": [1]}',
        '{"model": "m", "text": "t", "raw": [1]}'.encode("utf-16"),
    ],
    ids=["nan", "infinity", "surrogate", "byte-order-mark", "utf-16"],
)
def test_what_engines_read_and_json_forbids_is_routed(body: bytes) -> None:
    assert _read(body) == ParsedBody("m", ("t", "[1]"))


def test_unpaired_surrogates_are_mended_in_what_is_tokenised() -> None:
    parsed = _read(b'{"model": "m", "text": "cut \\ud83d", "raw": ["\\ude00"]}')

    assert parsed.texts == ("cut ?", '["\\ude00"]')


@pytest.mark.parametrize(
    "body",
    [b"{", b"nul", b'{"model": "m",}', b'{"model": "m"} x', b"\xff\xfe\xff", b'{"model": "\xff"}', b"model=m"],
)
def test_what_no_engine_reads_is_malformed(body: bytes) -> None:
    error = _error(body)

    assert (error.status, error.code, error.param) == (400, "invalid_json", None)


@pytest.mark.parametrize("body", [b"[1]", b'"m"', b"1", b"null", b"true", b"NaN"])
def test_json_that_is_not_an_object_is_said_to_be_so(body: bytes) -> None:
    assert _error(body).message == "The request's body must be a JSON object."


def test_an_empty_body_is_said_to_be_empty() -> None:
    assert _error(b"").code == "empty_body"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("field", [b"unknown", b"text", b"raw"])
@pytest.mark.parametrize("prefix", [b"", b'"x": NaN, '], ids=["strict", "lenient"])
def test_absurd_depth_is_refused_wherever_it_stands(prefix: bytes, field: bytes, opening: bytes) -> None:
    depth = 50_000
    closing = b"]" if opening == b"[" else b"}"

    error = _error(b'{"model": "m", ' + prefix + b'"%s": ' % field + opening * depth + b"1" + closing * depth + b"}")

    assert "nested too deeply" in error.message


def test_integers_of_thousands_of_digits_are_malformed() -> None:
    assert _error(b'{"model": "m", "text": ' + b"9" * 5000 + b"}").code == "invalid_json"


def test_the_lenient_way_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"model": "m", "x": NaN}'
    monkeypatch.setattr(subject, "LENIENT_BYTES", len(body))
    assert _read(body).model == "m"

    monkeypatch.setattr(subject, "LENIENT_BYTES", len(body) - 1)
    assert _error(body).code == "invalid_json"


@pytest.mark.parametrize("prefix", [b"", b'"x": NaN, '], ids=["strict", "lenient"])
@pytest.mark.parametrize("again", [b'"model"', b'"mod\\u0065l"'])
def test_a_field_that_is_given_twice_is_refused(again: bytes, prefix: bytes) -> None:
    error = _error(b"{" + prefix + b'"model": "cheap", ' + again + b': "dear"}')

    assert (error.status, error.param, error.code) == (400, "model", "duplicate_parameter")


@pytest.mark.parametrize("prefix", [b"", b'"x": NaN, '], ids=["strict", "lenient"])
def test_a_name_may_come_again_deeper_or_where_nobody_reads_it(prefix: bytes) -> None:
    body = b"{" + prefix + b'"a": 1, "a": {"model": 1, "model": 2}, "model": "m", "text": {"model": "n"}}'

    assert _read(body).model == "m"


def test_a_duplicate_is_not_remembered_for_the_next_body() -> None:
    for _ in range(2):
        assert _error(b'{"model": "a", "model": "b"}').code == "duplicate_parameter"
        assert _read(b'{"model": "a"}').model == "a"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "missing_required_parameter"),
        (7, "invalid_type"),
        (["m"], "invalid_type"),
        ({}, "invalid_type"),
        (False, "invalid_type"),
        ("", "invalid_value"),
        ("m" * 257, "invalid_value"),
        ("\ud800", "invalid_value"),
    ],
)
def test_what_is_no_model_name_is_refused(value: Any, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        model_name(value)

    assert (caught.value.param, caught.value.code) == ("model", code)


@pytest.mark.parametrize("value", [100, 100.0, "100", "0100"])
def test_a_number_may_be_spelt_as_engines_take_it(value: Any) -> None:
    assert whole_number("n", value) == 100


@pytest.mark.parametrize("value", [1.5, "1.5", "", "ten", "-1", "1" * 21, "\u0661", True, [], {}, float("nan"), 1e999])
def test_what_is_no_whole_number_is_said_to_be_none(value: Any) -> None:
    with pytest.raises(ApiError, match="'n' must be a whole number"):
        whole_number("n", value)


@pytest.mark.parametrize("value", [0, -1, -1.0, "0", -(2**70)])
def test_a_number_below_one_is_refused(value: Any) -> None:
    with pytest.raises(ApiError, match="'n' must be at least 1"):
        whole_number("n", value)


def test_the_first_limit_that_is_given_counts() -> None:
    assert token_limit(max_completion_tokens=5, max_tokens=9) == 5
    assert token_limit(max_completion_tokens=None, max_tokens=9) == 9
    assert token_limit(max_completion_tokens=None, max_tokens=None) is None
    assert token_limit(max_tokens=10**30) == 10_000_000


def test_the_largest_number_of_choices_counts() -> None:
    assert choice_count(n=None) == 1
    assert choice_count(n=2, best_of=5) == 5
    assert choice_count(n=10**9) == 1024


@given(st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.booleans()))
def test_a_number_is_absent_at_least_one_or_refused(value: Any) -> None:
    try:
        number = whole_number("n", value)
    except ApiError as error:
        assert error.param == "n"  # noqa: PT017  both outcomes are right
    else:
        assert number is None or number >= 1


@pytest.mark.parametrize("value", [True, 1, 1.0, "true", "True", "1", "yes", "on"])
def test_what_engines_take_for_true_is_true(value: Any) -> None:
    assert truth(value)


@pytest.mark.parametrize("value", [False, None, 0, "false", "", [], {}, [True], 2, float("nan")])
def test_everything_else_is_not(value: Any) -> None:
    assert not truth(value)


@given(st.text(st.characters(codec=None)))
def test_any_text_is_read_and_can_be_encoded(text: str) -> None:
    parsed = _read(json.dumps({"model": "m", "text": text, "raw": [text]}).encode())

    assert len(parsed.texts[0]) <= len(text)
    assert all(read_text.encode() for read_text in parsed.texts if read_text)
