"""By what a session is known, and that only a hash of it is handed on."""

import gzip
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.apis import chat_completions
from extproc.sessions import SessionKeys, hashed, of_body, of_cookies
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import POST, Envoy, ask, join, whole_message
from tests.extproc.gateway_model import piece, request_headers, tell
from tidegate.scheduling.request import InferenceRequest

COOKIE, FIELD = SessionKeys("", "sid", ""), SessionKeys("", "", "metadata.user_id")


def chat(**more: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **more}).encode()


async def decided(keys: SessionKeys, headers: Mapping[str, str], body: bytes) -> InferenceRequest:
    """Return the request as it was decided: the same whether Envoy asks in one exchange or two, or a gateway does."""
    desk, headers = FakeDesk(), {**POST, **headers}
    desk.sessions = keys
    assert (await ask(desk, headers=headers, body=body)).kind == "routed"
    message = whole_message(headers, body, also_read=[name for name in (keys.header, "cookie") if name])
    assert (await join(desk, Envoy(headers, body, 1), [message])).kind == "routed"
    assert (await tell(request_headers(headers), piece(body), desk=desk)).error is None
    one, two, three = desk.requests
    assert one._replace(id="") == two._replace(id="") == three._replace(id="")
    return one


async def test_a_session_is_known_by_its_header_and_handed_on_as_a_hash() -> None:
    request = await decided(SessionKeys(), {"x-session-id": "alice's secret"}, chat())
    assert request.session == hashed("alice's secret") != ""
    assert "alice" not in repr(request)


async def test_a_header_can_be_another_one() -> None:
    headers = {"x-conversation": "7", "x-session-id": "8"}
    assert (await decided(SessionKeys("x-conversation"), headers, chat())).session == hashed("7")


async def test_a_session_can_be_known_by_a_cookie() -> None:
    assert (await decided(COOKIE, {"cookie": "a=1; sid=abc; b=2"}, chat())).session == hashed("abc")
    assert (await decided(COOKIE, {"cookie": "a=1"}, chat())).session == ""


async def test_a_session_can_be_known_by_a_field_of_the_body() -> None:
    assert (await decided(FIELD, {}, chat(metadata={"user_id": "u7", "x": [1]}))).session == hashed("u7")
    assert (await decided(SessionKeys("", "", "user"), {}, chat(user="u8"))).session == hashed("u8")


async def test_a_field_of_a_compressed_body_is_read_as_well() -> None:
    body = gzip.compress(chat(user="u8"))
    headers = {"content-encoding": "gzip"}
    assert (await decided(SessionKeys("", "", "user"), headers, body)).session == hashed("u8")


async def test_of_several_keys_the_first_that_is_there_counts() -> None:
    keys = SessionKeys("x-session-id", "sid", "user")
    assert (await decided(keys, {"x-session-id": "h", "cookie": "sid=c"}, chat(user="f"))).session == hashed("h")
    assert (await decided(keys, {"cookie": "sid=c"}, chat(user="f"))).session == hashed("c")
    assert (await decided(keys, {"cookie": "sid="}, chat(user="f"))).session == hashed("f")
    assert (await decided(keys, {}, chat())).session == ""


def test_sessions_differ_by_their_names() -> None:
    assert hashed("") == ""
    assert hashed("a") != hashed("b")
    assert len(hashed("\ud83d" * 9999)) == 32


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("sid=1", "1"),
        ("sid=1; sid=2", "1"),
        ("xsid=0; sid=1", "1"),
        ("SID=0; sid=1", "1"),
        ('sid="a b"', "a b"),
        ("sid=a=b==", "a=b=="),
        (" sid = 1 ;", "1"),
        ("sid", ""),
        ("", ""),
        (";;;=;=sid;", ""),
        ("a=sid=1", ""),
    ],
)
def test_cookies_are_read_as_servers_read_them(header: str, value: str) -> None:
    assert of_cookies(header, "sid") == value


@given(st.text(st.characters(max_codepoint=255)))
def test_no_cookie_is_too_strange(header: str) -> None:
    value = of_cookies(header, "sid")
    assert ";" not in value
    assert value in header
    assert of_cookies(f"sid=x; {header}", "sid") == "x"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"user"',
        b"{",
        b"{}",
        b'{"user": 5}',
        b'{"user": null}',
        b'{"user": ""}',
        b'{"user": {"a": "b"}}',
        b'{"user": ["a"]}',
        b'{"user": "\xff"}',
        b'{"user": "\\ud800"}',
        b'{"a": ' + b"[" * 100_000,
    ],
)
def test_a_field_that_is_no_text_names_no_session(body: bytes) -> None:
    assert of_body(body, "user") == ""


@pytest.mark.parametrize("metadata", [None, 5, "u", [], {}, {"user_id": 5}, {"user_id": None}])
def test_nor_does_one_in_what_is_no_object(metadata: object) -> None:
    assert of_body(json.dumps({"metadata": metadata}).encode(), "metadata.user_id") == ""


@given(st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=5).map(json.dumps))
def test_no_body_is_too_strange(body: bytes | str) -> None:
    assert len(of_body(body if isinstance(body, bytes) else body.encode(), "user")) in (0, 32)


def test_a_body_is_read_by_its_api_alone_where_no_field_is_asked_for() -> None:
    assert SessionKeys().reading(chat_completions.parse) is chat_completions.parse
