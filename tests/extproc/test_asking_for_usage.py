"""A stream's usage is asked for in its client's name, where the pool is to, and nowhere else."""

import gzip
import json
from typing import Any

import pytest

from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import POST, Result, ask

ASKED = b'{"stream_options":{"include_usage":true},'


def desk(*, injecting: bool = True, reading: bool = True) -> FakeDesk:
    made = FakeDesk()
    made.injecting = frozenset({"default"}) if injecting else frozenset()
    made.reading = frozenset({"default"}) if reading else frozenset()
    return made


def body(**fields: Any) -> bytes:
    messages = [{"role": "user", "content": "x"}]
    return json.dumps({"model": "m", "stream": True, "messages": messages, "prompt": "x", **fields}).encode()


def headers(sent: bytes, path: str = "/v1/chat/completions", **more: str) -> dict[str, str]:
    return {**POST, ":path": path, "content-length": str(len(sent)), **more}


async def send(sent: bytes, at: FakeDesk, **more: str) -> Result:
    return await ask(at, headers(sent, **more), sent)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_stream_is_asked_for_its_usage_with_the_right_length(path: str) -> None:
    sent = body()
    result = await ask(desk(), headers(sent, path), sent)
    assert result.kind == "routed"
    assert result.sent_on == ASKED + sent[1:]
    assert result.mutated == {"content-length": str(len(sent) + len(ASKED) - 1)}
    assert result.clear_route_cache
    assert result.metadata["tidegate"]["withhold"] is True
    assert result.metadata["tidegate"]["read"] is True


async def test_a_body_that_came_in_chunks_gets_no_length() -> None:
    sent = body()
    result = await ask(desk(), POST, sent)
    assert (result.sent_on, result.mutated) == (ASKED + sent[1:], {})


async def test_a_client_whose_answer_does_not_pass_here_sees_the_event() -> None:
    result = await send(body(), desk(reading=False))
    assert result.sent_on is not None
    assert result.sent_on.startswith(ASKED)
    assert result.metadata["tidegate"]["withhold"] is False
    assert "read" not in result.metadata["tidegate"]


@pytest.mark.parametrize(
    "sent",
    [body(stream=False), body(stream_options={"include_usage": True}), body(stream=None)],
    ids=["whole", "asked", "null"],
)
async def test_what_needs_no_asking_is_sent_on_as_it_came(sent: bytes) -> None:
    result = await send(sent, desk())
    assert (result.sent_on, result.mutated) == (sent, {})
    assert "withhold" not in result.metadata["tidegate"]


async def test_a_client_that_says_no_is_asked_for_and_spared_the_event() -> None:
    sent = body(stream_options={"include_usage": False})
    result = await send(sent, desk())
    assert result.sent_on == sent.replace(b'"include_usage": false', b'"include_usage": true')
    assert result.metadata["tidegate"]["withhold"] is True


async def test_other_pools_and_other_apis_are_left_alone() -> None:
    sent = body()
    assert (await send(sent, desk(injecting=False))).sent_on == sent
    for path, more in (("/v1/messages", {"max_tokens": 9}), ("/v1/responses", {"input": "x"}), ("/generate", {})):
        other = body(**more)
        result = await ask(desk(), headers(other, path), other)
        assert (result.kind, result.sent_on) == ("routed", other)


async def test_a_compressed_body_is_left_as_it_is() -> None:
    sent = gzip.compress(body())
    result = await send(sent, desk(), **{"content-encoding": "gzip"})
    assert (result.kind, result.sent_on, result.mutated) == ("routed", sent, {})


async def test_a_large_body_is_changed_too() -> None:
    sent = body(messages=[{"role": "user", "content": "x" * 2_000_000}])
    result = await send(sent, desk())
    assert result.sent_on == ASKED + sent[1:]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("options", [[], "x", 1, True])
async def test_options_that_are_no_object_are_refused(path: str, options: object) -> None:
    sent = body(stream_options=options)
    result = await ask(desk(), headers(sent, path), sent)
    assert (result.kind, result.status, result.fault["param"]) == ("answered", 400, "stream_options")


async def test_options_given_twice_are_refused() -> None:
    sent = b'{"model":"m","stream":true,"messages":[],"stream_options":null,"stream_options":{}}'
    result = await send(sent, desk())
    assert (result.status, result.fault["param"]) == (400, "stream_options")


@pytest.mark.parametrize("options", [None, {}])
async def test_options_that_say_nothing_are_taken(options: object) -> None:
    result = await send(body(stream_options=options), desk())
    assert result.sent_on == body(stream_options=options).replace(
        json.dumps({"stream_options": options})[1:-1].encode(), b'"stream_options": {"include_usage":true}'
    )
