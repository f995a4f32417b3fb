"""Streams that bring nothing but keep-alive comments, through a real Envoy."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest

from tests.e2e.failing_engine import LATE_SECONDS, FailingEngine, failing_engines
from tests.e2e.stack import MODEL, Stack, configuration, fetch, until, up

STILL_SECONDS = 1.5
PATIENT_SECONDS = 5.0
assert STILL_SECONDS < LATE_SECONDS < PATIENT_SECONDS < 3 * LATE_SECONDS


@pytest.fixture(scope="module")
def engines() -> Iterator[list[FailingEngine]]:
    with failing_engines(3) as running:
        yield running


@pytest.fixture(scope="module")
def stack(engines: list[FailingEngine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two pools that are soon out of patience, with either source of usage, and one that is not."""
    config = configuration([], "round_robin", "none")
    config["pools"] = [
        {
            "name": name,
            "engine": "none",
            "models": [model],
            "idle_timeout_seconds": seconds,
            "usage": usage,
            "breaker": {"enabled": False},
            "checks": [],
            "endpoints": [{"address": f"127.0.0.1:{engine.port}"}],
        }
        for engine, name, model, seconds, usage in zip(
            engines,
            ("hasty", "read", "patient"),
            (MODEL, "read", "patient"),
            (STILL_SECONDS, STILL_SECONDS, PATIENT_SECONDS),
            ("access_log", "stream", "access_log"),
            strict=True,
        )
    ]
    with up(tmp_path_factory.mktemp("stalls"), config) as running:
        yield running


OPENAI = ("chat/completions", "completions")


def bodies(word: str, model: str = MODEL) -> dict[str, dict[str, Any]]:
    """Return a streamed request of each API that has the engine do ``word``."""
    messages = [{"role": "user", "content": "hello"}]
    of_all = {"model": model, "stream": True, "user": word}
    return {
        "chat/completions": of_all | {"messages": messages},
        "completions": of_all | {"prompt": "hello"},
        "messages": of_all | {"messages": messages, "max_tokens": 8},
        "responses": of_all | {"input": "hello"},
    }


def stream(stack: Stack, path: str, body: dict[str, Any]) -> tuple[bytes, bool]:
    """Send a request and read until the connection ends; return all of the answer's body, and whether it ended well."""
    text = json.dumps(body).encode()
    host = f"127.0.0.1:{stack.config['listener']['port']}"
    head = f"POST /v1/{path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nconnection: close\r\n"
    with socket.create_connection(("127.0.0.1", stack.config["listener"]["port"]), 40) as connection:
        connection.sendall(f"{head}content-length: {len(text)}\r\n\r\n".encode() + text)
        came = b""
        while piece := connection.recv(65_536):
            came += piece
    headers, _, body_came = came.partition(b"\r\n\r\n")
    assert b" 200 " in headers.partition(b"\r\n")[0], came
    return body_came, body_came.endswith(b"0\r\n\r\n")


def stalled(stack: Stack) -> float:
    return stack.total("tidegate_failed_attempts_total", ending="stalled")


def events_of(body: bytes) -> list[str]:
    """Return the lines of the events that are no pings."""
    lines = [line for line in body.decode().splitlines() if line.startswith(("data:", "event:"))]
    return [line for line in lines if "ping" not in line]


def check(path: str, body: bytes) -> None:
    """Check that a stream of the API at ``path`` ended with an error in its own form."""
    events = events_of(body)
    if path != "messages":
        assert events.pop(0) == 'data: {"one": 1}'
        begun = next(event for event in body.split(b"\n\n") if b'"one"' in event)
        assert b"broken off" not in begun, "the error is an event of its own"
    if path.endswith("completions"):
        error, done = events
        assert json.loads(error.removeprefix("data: "))["error"]["code"] == "stalled"
        assert done == "data: [DONE]"
        return
    name, error = events
    said = json.loads(error.removeprefix("data: "))
    assert (name, said["type"]) == ("event: error", "error")
    assert path == "responses" or said["error"]["type"] == "timeout_error"


def test_a_stream_of_nothing_but_comments_ends_with_an_error_of_its_api_and_is_then_broken_off(stack: Stack) -> None:
    before = stalled(stack)
    asked = [
        (path, body)
        for model in (MODEL, "read")
        for path, word in (("messages", "pings"), *((path, "one_then_comments") for path in ("responses", *OPENAI)))
        for body in (bodies(word, model)[path],)
    ]
    with ThreadPoolExecutor(len(asked)) as clients:
        came = list(clients.map(lambda one: stream(stack, *one), asked))
    for (path, _), (body, well) in zip(asked, came, strict=True):
        check(path, body)
        assert not well, "the client has not left, and Envoy broke it off"
    stack.settle()
    assert stack.inflight() == {}
    assert stalled(stack) == before + len(asked)


def test_clients_raise_the_error_and_what_is_held_is_free_when_they_have_left(stack: Stack) -> None:
    before = stalled(stack)
    asking = openai.OpenAI(base_url=stack.clients, api_key="x", max_retries=0, timeout=40)
    with asking, pytest.raises(openai.APIError, match="broken off"):
        list(asking.chat.completions.create(**bodies("split")["chat/completions"]))
    asking_claude = anthropic.Anthropic(base_url=stack.clients.removesuffix("/v1"), api_key="x", max_retries=0)
    body = bodies("comments")["messages"]
    more = {"user": body.pop("user")}
    with asking_claude, pytest.raises(anthropic.APIError, match="broken off"):
        list(asking_claude.messages.create(**body, extra_body=more))
    stack.settle()
    assert stack.inflight() == {}
    assert stalled(stack) == before + 2
    assert stack.total("tidegate_requests_total", outcome="client_gone") == 0


def test_a_slow_stream_with_comments_before_its_first_token_and_between_tokens_is_not_cut(stack: Stack) -> None:
    late = bodies("late", "patient")
    asked = [(path, late[path]) for path in late] + [("completions", bodies("in_pieces")["completions"])]
    with ThreadPoolExecutor(len(asked)) as clients:
        came = list(clients.map(lambda one: stream(stack, *one), asked))
    assert all(well for _, well in came)
    assert all(events_of(body)[-1] == "data: [DONE]" for body, _ in came)
    assert all(len(events_of(body)) >= 3 for body, _ in came[:-1]), "it took longer than the comments may"


def test_the_program_in_envoy_met_nothing_that_it_did_not_expect(stack: Stack) -> None:
    admin = f"http://127.0.0.1:{stack.config['envoy']['admin_port']}"
    until(lambda: "lua.errors" in fetch(f"{admin}/stats?filter=lua.errors")[1], 5, "there are statistics")
    _, stats, _ = fetch(f"{admin}/stats?filter=lua.errors")
    assert all(line.endswith(": 0") for line in stats.splitlines()), stats
