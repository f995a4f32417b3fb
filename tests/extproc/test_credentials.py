import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.credentials import MAX_KEY_CHARACTERS, key_of
from extproc.errors import ApiError


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer sk-1"},
        {"authorization": "bearer sk-1"},
        {"authorization": "  BEARER   sk-1 "},
        {"x-api-key": "sk-1"},
        {"x-api-key": " sk-1"},
        {"x-api-key": "sk-1", "authorization": "Bearer sk-1"},
    ],
)
def test_a_key_is_read_as_openais_and_as_anthropics_clients_send_it(headers: dict[str, str]) -> None:
    assert key_of(headers) == "sk-1"


def test_no_credentials_are_no_key() -> None:
    assert key_of({":path": "/", "x-session-id": "sk-1"}) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Basic c2stMQ=="},
        {"authorization": "sk-1"},
        {"authorization": "Bearer\tsk-1"},
        {"x-api-key": ""},
        {"x-api-key": "k" * (MAX_KEY_CHARACTERS + 1)},
        {"x-api-key": "sk-1", "authorization": "Bearer sk-2"},
        {"x-api-key": "sk-1", "authorization": "Basic sk-1"},
    ],
)
def test_what_is_no_key_or_more_than_one_is_refused_without_being_repeated(headers: dict[str, str]) -> None:
    with pytest.raises(ApiError) as refused:
        key_of(headers)
    error = refused.value
    assert (error.status, error.reason, error.code) == (401, "unauthenticated", "invalid_api_key")
    assert "sk-1" not in error.message
    assert error.headers == {"www-authenticate": "Bearer"}


def test_a_header_that_came_twice_is_one_key_of_nobody() -> None:
    assert key_of({"authorization": "Bearer sk-1,Bearer sk-2"}) == "sk-1,Bearer sk-2"


@given(st.dictionaries(st.sampled_from(["authorization", "x-api-key"]), st.text(max_size=600)))
def test_whatever_is_shown_is_a_bounded_key_or_an_error_for_the_client(headers: dict[str, str]) -> None:
    key = None
    with contextlib.suppress(ApiError):
        key = key_of(headers)
    assert key is None or (bool(headers) and 0 < len(key) <= MAX_KEY_CHARACTERS)
