"""What answers cost, through a real Envoy: in a pool whose answers are read, and in pools where Envoy's log tells."""

import functools
import gzip
import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest

from tests.e2e.scripted_engine import SSE, Script, ScriptedEngine
from tests.e2e.stack import Stack, fetch, until
from tests.e2e.usage_fleet import MESSAGES, Counting, Fleet, usage_fleet
from tests.extproc.answers import (
    CHAT,
    CHAT_WITHOUT,
    LAST,
    ROLE,
    STREAMS,
    USAGE_BYTES,
    chunk,
    named,
    stream,
    usage,
)

JSON = {"content-type": "application/json"}
ASKED = b'{"stream_options":{"include_usage":true},'


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with usage_fleet(tmp_path_factory.mktemp("usage")) as running:
        yield running


PATHS = {"completions": "/v1/completions", "messages": "/v1/messages", "responses": "/v1/responses"}


def path_of(name: str) -> str:
    return next((path for word, path in PATHS.items() if name.startswith(word)), "/v1/chat/completions")


@pytest.mark.parametrize("name", STREAMS)
def test_every_form_of_stream_reaches_the_client_byte_for_byte_and_is_counted(fleet: Fleet, name: str) -> None:
    body, tokens, _ = STREAMS[name]
    count = Counting(fleet, "read")
    ask = fleet.play("read", body, path=path_of(name))
    assert ask(stream_options={"include_usage": True}) == body
    counted = count()
    failed = name == "responses, failed"
    assert counted.pop("requestsupstream_error" if failed else "requestsok") == 1
    assert counted.get("prompt_tokens") == tokens.prompt
    assert counted.get("completion_tokens") == tokens.completion
    assert counted.get("cached_prompt_tokens", 0) == (tokens.cached or 0)
    assert counted.get("reasoning_tokens", 0) == (tokens.reasoning or 0)
    assert ("unreported_tokensoutput" in counted) == (tokens.completion is None)


NOT_BY_ENVOY = ["chat without a last empty line", "chat with a zero at the end"]
READ_BY_ENVOY = [
    name
    for name in STREAMS
    if name not in NOT_BY_ENVOY
    and not name.startswith(("TGI", "SGLang", "chat with timings", "chat with tools", "responses, failed"))
]


@pytest.mark.parametrize("name", READ_BY_ENVOY)
def test_envoy_reads_the_usual_forms_alike(fleet: Fleet, name: str) -> None:
    body, tokens, _ = STREAMS[name]
    count = Counting(fleet, "logged")
    assert fleet.play("logged", body, path=path_of(name))(stream_options={"include_usage": True}) == body
    counted = count()
    assert (counted.get("prompt_tokens"), counted.get("completion_tokens")) == (tokens.prompt, tokens.completion)


@pytest.mark.parametrize("name", NOT_BY_ENVOY)
def test_what_envoy_does_not_read_is_estimated(fleet: Fleet, name: str) -> None:
    count = Counting(fleet, "logged")
    fleet.play("logged", STREAMS[name][0])(stream_options={"include_usage": True})
    counted = count()
    assert counted["usage_unknown"] == counted["requestsok"] == 1
    assert counted["unreported_tokensoutput"] > 0
    assert counted["unreported_tokensprompt"] > 0


def test_a_client_that_did_not_ask_gets_every_byte_but_the_usage_event(fleet: Fleet) -> None:
    count = Counting(fleet, "read")
    engine = fleet.engines["read"]
    ask = fleet.play("read", CHAT)
    assert ask() == CHAT_WITHOUT
    assert ask(stream_options={"include_usage": False}) == CHAT_WITHOUT
    assert ask(stream_options=None) == CHAT_WITHOUT
    assert ask(stream_options={"include_usage": True}) == CHAT
    assert [json.loads(body)["stream_options"] for body in engine.bodies[-4:]] == [{"include_usage": True}] * 4
    assert engine.bodies[-4].startswith(ASKED)
    for body, headers in zip(engine.bodies[-4:], engine.headers[-4:], strict=True):
        assert headers["content-length"] == str(len(body))
    assert count() == {"requestsok": 4, "prompt_tokens": 28, "completion_tokens": 8}


def test_a_usage_event_is_counted_and_kept_back_wherever_it_is_cut(fleet: Fleet) -> None:
    count = Counting(fleet, "read")
    start = CHAT.index(USAGE_BYTES)
    places = range(start, start + len(USAGE_BYTES) + 1, 3)

    def cut(place: int) -> bytes:
        fleet.engines["read"].scripts[str(place)] = Script([CHAT[:place], CHAT[place:]], pause=0.02)
        return fleet.send("read", user=str(place))

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(cut, places)) == {CHAT_WITHOUT}
    number = len(places)
    assert count() == {"requestsok": number, "prompt_tokens": 7 * number, "completion_tokens": 2 * number}


def test_an_error_inside_a_stream_is_a_failure_where_answers_are_read(fleet: Fleet) -> None:
    body = stream(ROLE, chunk("a"), {"error": {"message": "busy", "code": 503}}, done=False)
    for pool, outcome in (("read", "upstream_error"), ("logged", "ok")):
        count = Counting(fleet, pool)
        assert fleet.play(pool, body)() == body
        assert count()[f"requests{outcome}"] == 1


def test_an_answer_that_the_engine_breaks_off_is_charged_what_was_delivered(fleet: Fleet) -> None:
    words = [stream(chunk("word"), done=False) for _ in range(40)]
    for pool in ("read", "logged"):
        count = Counting(fleet, pool)
        with pytest.raises(http.client.IncompleteRead):
            fleet.play(pool, *words, pause=0.002, breaks=True)()
        counted = count()
        assert counted["requestsupstream_error"] == 1
        assert counted["unreported_tokensoutput"] == pytest.approx(40, rel=0.5 if pool == "logged" else 0.05)
        assert counted["unreported_tokensprompt"] > 0
        assert "completion_tokens" not in counted


def has_left(engine: ScriptedEngine) -> bool:
    return engine.left > 0


def test_a_client_that_leaves_is_charged_what_was_delivered(fleet: Fleet) -> None:
    words = [stream(chunk("word"), done=False) for _ in range(400)]
    for pool in ("read", "logged"):
        count = Counting(fleet, pool)
        fleet.play(pool, *words, pause=0.01)
        with fleet.opened(pool) as answer:
            read = answer.read(len(words[0]) * 30)
        assert read == b"".join(words[:30])
        engine = fleet.engines[pool]
        until(functools.partial(has_left, engine), 10, "the engine sees that the client left")
        counted = count()
        assert counted["requestsclient_gone"] == 1
        # What was on its way to the client counts as delivered. Envoy's log knows the bytes alone.
        assert (25 if pool == "read" else 10) <= counted["unreported_tokensoutput"] <= 60


def test_streams_that_tell_nothing_are_estimated_and_said_to_be(fleet: Fleet) -> None:
    words = [stream(chunk("word"), done=False) for _ in range(100)]
    count = Counting(fleet, "logged")
    body = b"".join(words)
    assert fleet.play("logged", body)() == body
    assert b"stream_options" not in fleet.engines["logged"].bodies[-1]
    counted = count()
    assert counted["usage_unknown"] == 1
    assert "completion_tokens" not in counted
    assert counted["unreported_tokensoutput"] == pytest.approx(100, rel=0.5)


def test_what_a_token_takes_is_learned_from_the_streams_that_tell(fleet: Fleet) -> None:
    words = [stream(chunk("word" * 40), done=False) for _ in range(100)]
    told = b"".join([*words, stream({"choices": [], "usage": usage(5, 100)})])
    ask = fleet.play("logged", told)
    for _ in range(30):
        ask(stream_options={"include_usage": True})
    count = Counting(fleet, "logged")
    fleet.play("logged", b"".join(words))()
    assert count()["unreported_tokensoutput"] == pytest.approx(100, rel=0.1)


def test_usage_asked_for_in_the_clients_name_is_seen_by_it_where_answers_do_not_pass_us(fleet: Fleet) -> None:
    count = Counting(fleet, "asked")
    assert fleet.play("asked", CHAT)() == CHAT
    assert fleet.engines["asked"].bodies[-1].startswith(ASKED)
    assert count() == {"requestsok": 1, "prompt_tokens": 7, "completion_tokens": 2}


def test_an_attempt_that_failed_is_not_counted_beside_the_one_that_did_not(fleet: Fleet) -> None:
    count = Counting(fleet, "read")
    error = {"error": {"message": "busy"}, "usage": usage(500, 500)}
    ask = fleet.play("read", json.dumps(error).encode(), status=503, headers=JSON)
    assert json.loads(ask()) == error
    assert count() == {"requestsupstream_error": 1}


@pytest.mark.parametrize("pool", ["read", "logged"])
def test_a_whole_answer_is_counted(fleet: Fleet, pool: str) -> None:
    count = Counting(fleet, pool)
    body = json.dumps({"choices": [{"message": {"content": "abc"}}], "usage": usage(7, 2)}).encode()
    assert fleet.play(pool, body[:30], body[30:], headers=JSON, pause=0.02)(stream=False) == body
    assert count() == {"requestsok": 1, "prompt_tokens": 7, "completion_tokens": 2}


def test_an_answer_that_is_compressed_against_our_wish_passes_and_is_counted(fleet: Fleet) -> None:
    count = Counting(fleet, "read")
    packed = gzip.compress(CHAT)
    ask = fleet.play("read", packed[:50], packed[50:], headers={**SSE, "content-encoding": "gzip"}, pause=0.02)
    assert ask(stream_options={"include_usage": True}) == packed
    assert count() == {"requestsok": 1, "prompt_tokens": 7, "completion_tokens": 2}
    assert "accept-encoding" not in fleet.engines["read"].headers[-1]


@pytest.mark.parametrize(
    "filler",
    [b"data: " + b"x" * 10_000_000 + b"\n\n", b": keep-alive\n\n" * 100_000, b"\r\n" * 200_000],
    ids=["a line of ten megabytes", "a flood of comments", "a flood of empty lines"],
)
def test_whatever_stands_around_it_usage_is_counted_and_kept_back(fleet: Fleet, filler: bytes) -> None:
    count = Counting(fleet, "read")
    pieces = [filler[n : n + 60_000] for n in range(0, len(filler), 60_000)]
    assert fleet.play("read", *pieces, CHAT)() == filler + CHAT_WITHOUT
    assert count() == {"requestsok": 1, "prompt_tokens": 7, "completion_tokens": 2}


def test_a_large_answer_of_vectors_passes(fleet: Fleet) -> None:
    count = Counting(fleet, "read")
    vectors = {"data": [{"embedding": [0.123456] * 1_000_000}], "usage": {"prompt_tokens": 4, "total_tokens": 4}}
    body = json.dumps(vectors).encode()
    ask = fleet.play("read", body, headers=JSON, path="/v1/embeddings")
    assert ask(stream=False) == body
    assert count() == {"requestsok": 1, "prompt_tokens": 4}


def test_events_are_passed_on_as_they_come(fleet: Fleet) -> None:
    words = [stream(chunk("word"), done=False) for _ in range(10)]
    fleet.play("read", *words, pause=0.1)
    began = time.monotonic()
    with fleet.opened("read") as answer:
        assert answer.read(len(words[0])) == words[0]
        assert time.monotonic() - began < 0.6
        assert answer.read() == b"".join(words[1:])


def test_a_redirect_is_not_followed_and_no_control_header_comes_through(fleet: Fleet) -> None:
    for pool in ("read", "logged"):
        spoof = {"location": "http://127.0.0.1:1/", "x-gateway-destination-endpoint-served": "spoof"}
        fleet.play(pool, status=302, headers=spoof)
        with fleet.opened(pool) as answer:
            assert (answer.status, answer.getheader("x-gateway-destination-endpoint-served")) == (302, None)


def test_the_openai_library_sees_usage_only_where_it_asked(fleet: Fleet) -> None:
    fleet.play("read", stream(ROLE, chunk("Hello"), LAST, {"choices": [], "usage": usage(7, 1)}))
    with openai.OpenAI(base_url=fleet.stack.clients, api_key="unused", max_retries=0) as client:
        for options in ({}, {"stream_options": {"include_usage": True}}):
            create: Any = client.chat.completions.create
            chunks = create(model="read", messages=MESSAGES, stream=True, **options)
            told = [one.usage.completion_tokens for one in chunks if one.usage]
            assert told == ([1] if options else [])


def test_the_anthropic_library_streams_through_a_pool_whose_answers_are_read(fleet: Fleet) -> None:
    message: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "read",
        "stop_reason": None,
    }
    told = {"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 3}
    fleet.play(
        "read",
        named(
            {"type": "message_start", "message": {**message, "stop_sequence": None, "usage": told}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}},
            {"type": "message_stop"},
        ),
    )
    count = Counting(fleet, "read")
    address = fleet.stack.clients.removesuffix("/v1")
    with (
        anthropic.Anthropic(base_url=address, api_key="unused", max_retries=0) as client,
        client.messages.stream(model="read", max_tokens=99, messages=[{"role": "user", "content": "x"}]) as answer,
    ):
        assert "".join(answer.text_stream) == "Hello"
    assert count() == {"requestsok": 1, "prompt_tokens": 8, "completion_tokens": 15, "cached_prompt_tokens": 3}


def test_answers_go_on_when_the_control_plane_hangs(fleet: Fleet) -> None:
    words = [stream(chunk("word"), done=False) for _ in range(40)]
    gate = threading.Event()
    fleet.play("read", *words, gate=gate)
    serve = fleet.stack.child("serve")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(fleet.send, "read")
        time.sleep(0.5)  # half of it is there
        serve.suspend()
        try:
            gate.set()
            assert answer.result(15) == b"".join(words)
        finally:
            serve.resume()


def is_ready(stack: Stack) -> bool:
    try:
        return fetch(f"{stack.admin}/readyz")[0] == 200
    except OSError:
        return False


def test_answers_go_on_when_the_control_plane_is_killed(fleet: Fleet) -> None:
    words = [stream(chunk("word"), done=False) for _ in range(100)]
    gate = threading.Event()
    fleet.play("read", *words, stream(LAST), gate=gate)
    whole = b"".join([*words, stream(LAST)])
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(fleet.send, "read") for _ in range(4)]
        time.sleep(0.5)  # half of each is there
        fleet.stack.child("serve").kill()
        until(functools.partial(is_ready, fleet.stack), 40, "another control plane is there")
        time.sleep(2.0)  # Envoy connects to it again
        gate.set()
        assert [answer.result() for answer in answers] == [whole] * 4
    fleet.stack.settle()
    counted = fleet.counted("read")
    assert counted["answers_read_in_part"] == counted["requestsok"] == 4
    assert counted["unreported_tokensoutput"] == pytest.approx(400, rel=0.1)
