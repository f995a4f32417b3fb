import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.errors import ApiError, Shape, missing, of_refusal, shape_of, wrong_type, wrong_value
from tidegate.scheduling.dispatch import Refusal, RefusalReason


def test_an_error_has_the_four_fields_that_sdks_read() -> None:
    error = ApiError(400, 'say "please"', param="messages[0]", code="invalid_type")

    assert json.loads(error.body()) == {
        "error": {
            "message": 'say "please"',
            "type": "invalid_request_error",
            "param": "messages[0]",
            "code": "invalid_type",
        }
    }
    assert str(error) == error.message


def test_field_errors_name_the_field() -> None:
    for error in (missing("input"), wrong_type("input", "a string"), wrong_value("input", "at least 1")):
        assert (error.status, error.param, error.reason) == (400, "input", "invalid_request")
        assert "'input'" in error.message


def test_an_unknown_model_is_not_found_and_named() -> None:
    error = of_refusal(Refusal(RefusalReason.UNKNOWN_MODEL), "gpt-9")

    assert (error.status, error.reason, error.param, error.code) == (404, "unknown_model", "model", "model_not_found")
    assert error.message == 'The model "gpt-9" does not exist.'
    assert error.headers == {}


def test_a_pool_without_endpoints_is_worth_another_try() -> None:
    error = of_refusal(Refusal(RefusalReason.NO_ENDPOINTS, "default"), "m")

    assert (error.status, error.kind, error.reason) == (503, "service_unavailable", "no_endpoints")
    assert error.headers == {"retry-after": "1"}
    assert "default" not in error.message


def test_no_model_where_one_must_be_named_is_told_as_that() -> None:
    error = of_refusal(Refusal(RefusalReason.UNKNOWN_MODEL), "")

    assert (error.status, error.param, error.code) == (400, "model", "missing_required_parameter")


@pytest.mark.parametrize("reason", RefusalReason)
def test_every_reason_to_refuse_has_an_answer(reason: RefusalReason) -> None:
    assert of_refusal(Refusal(reason), "m").reason == reason.value


@given(st.text())
def test_a_model_is_echoed_escaped_and_cut(model: str) -> None:
    message = of_refusal(Refusal(RefusalReason.UNKNOWN_MODEL), model).message

    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 1300


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/messages", Shape.ANTHROPIC),
        ("/v1/messages/count_tokens", Shape.ANTHROPIC),
        ("/v1/messagesx", Shape.OPENAI),
        ("/v1/chat/completions", Shape.OPENAI),
        ("", Shape.OPENAI),
    ],
)
def test_the_path_says_what_form_an_error_has(path: str, shape: Shape) -> None:
    assert shape_of({":path": path}) is shape
    assert shape_of({":path": f"{path}?beta=true"}) is shape


def test_on_a_path_that_both_apis_have_the_header_says_it() -> None:
    assert shape_of({":path": "/v1/models/x"}) is Shape.OPENAI
    assert shape_of({":path": "/v1/models/x", "anthropic-version": "2023-06-01"}) is Shape.ANTHROPIC
    assert shape_of({":path": "/v1/completions", "anthropic-version": "2023-06-01"}) is Shape.OPENAI
    assert shape_of({}) is Shape.OPENAI


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (415, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_anthropics_form_has_its_own_types(status: int, kind: str) -> None:
    error = ApiError(status, "no", param="p", code="c")

    assert json.loads(error.body(Shape.ANTHROPIC)) == {"type": "error", "error": {"type": kind, "message": "no"}}
