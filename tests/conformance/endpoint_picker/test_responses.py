"""Responses: cases 14 to 23 of the reference suite, and what no suite covers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from tests.conformance.endpoint_picker import messages
from tests.conformance.endpoint_picker.messages import DESTINATION, HEADERS, completion
from tests.conformance.endpoint_picker.picker import Picker, Stream, mutated, routed

JSON = {":status": "200", "content-type": "application/json", "x-backend-server": "b"}
EVENTS = {":status": "200", "content-type": "text/event-stream"}
FULL = b'{"max_tokens":100,"model":"my-model","usage":{"prompt_tokens":11,"completion_tokens":100,"total_tokens":111}}'


@asynccontextmanager
async def answering(
    picker: Picker, headers: dict[str, str], **sent: str
) -> AsyncIterator[tuple[Stream, dict[str, str]]]:
    """Open a stream whose request is routed and whose response has begun; yield its headers as the client sees them."""
    async with picker.stream() as stream:
        pick = (await routed(stream, completion(), sent={**HEADERS, **sent})).pick
        await stream.send(messages.response_headers(headers, served=pick))
        reply = await stream.reply("response_headers")
        assert not reply.response_headers.response.clear_route_cache
        yield stream, mutated(headers, reply.response_headers.response.header_mutation)


async def test_a_json_answer_in_two_messages_arrives_whole(picker: Picker) -> None:
    """Case 14: buffering multi-chunk JSON."""
    async with answering(picker, JSON) as (stream, headers):
        await stream.send(messages.response_body(FULL[:24]), messages.response_body(FULL[24:], end=True))
        assert (await stream.streamed("response_body"))[0] == FULL
        assert await stream.ended() is grpc.StatusCode.OK
    assert headers["content-type"] == "application/json"


async def test_an_answer_that_is_no_json_passes_byte_by_byte(picker: Picker) -> None:
    """Case 15: invalid JSON response."""
    async with answering(picker, JSON) as (stream, _):
        await stream.send(messages.response_body(b"no healthy upstream", end=True))
        assert (await stream.streamed("response_body"))[0] == b"no healthy upstream"


async def test_an_answer_that_ends_with_an_empty_message_arrives_whole(picker: Picker) -> None:
    """Case 16: empty EOS."""
    async with answering(picker, JSON) as (stream, _):
        await stream.send(messages.response_body(FULL), messages.response_body(b"", end=True))
        assert (await stream.streamed("response_body"))[0] == FULL


async def test_the_events_of_a_stream_are_sent_on_as_they_come(picker: Picker) -> None:
    """Case 17: SSE token counting."""
    first = b"data: {}\n\n"
    usage = b'data: {"usage":{"prompt_tokens":7,"total_tokens":17,"completion_tokens":10}}\n\ndata: [DONE]\n\n'
    async with answering(picker, EVENTS) as (stream, _):
        for event in (first, usage):
            await stream.send(messages.response_body(event))
            assert await stream.echoed(len(event)) == event
        await stream.send(messages.response_body(b"", end=True))
        assert (await stream.streamed("response_body"))[0] == b""


async def test_usage_in_an_answer_is_left_as_it_is(picker: Picker) -> None:
    """Case 18: non-stream usage."""
    usage = {"prompt_tokens": 11, "completion_tokens": 100, "total_tokens": 111}
    sent = json.dumps({"usage": {**usage, "prompt_tokens_details": {"cached_tokens": 10}}}).encode()
    async with answering(picker, JSON) as (stream, _):
        await stream.send(messages.response_body(sent, end=True))
        assert (await stream.streamed("response_body"))[0] == sent


@pytest.mark.feature("cost")
async def test_an_answers_cost_is_told(picker: Picker) -> None:
    """Case 19: cost metadata, JSON."""
    async with answering(picker, JSON) as (stream, _):
        await stream.send(messages.response_body(b'{"usage": {"completion_tokens": 10}}', end=True))
        told = MessageToDict((await stream.reply("response_body")).dynamic_metadata)
    assert told["envoy.lb"]["x-gateway-inference-request-cost"] == 10.0


@pytest.mark.feature("model-rewrite")
async def test_a_rewritten_models_name_is_restored(picker: Picker) -> None:
    """Case 20: rewriteModelName."""
    async with picker.stream() as stream:
        await routed(stream, completion("model-to-be-rewritten"))
        await stream.send(messages.response_headers(JSON))
        await stream.reply("response_headers")
        await stream.send(messages.response_body(b'{"model":"rewritten-model"}', end=True))
        assert json.loads((await stream.streamed("response_body"))[0])["model"] == "model-to-be-rewritten"


async def test_control_headers_of_an_answer_go_and_all_others_stay(picker: Picker) -> None:
    """Case 21: header sanitisation, of a response."""
    sent = {**JSON, DESTINATION: "1.1.1.1:666", "x-gateway-inference-objective": "o"}
    async with answering(picker, sent) as (_, headers):
        assert headers["x-backend-server"] == "b"
        assert not {DESTINATION, "x-gateway-inference-objective"} & set(headers)


@pytest.mark.parametrize("size", [0, 62_000, 62_001, 125_000, 1_000_000])
async def test_an_answers_body_is_sent_on_in_pieces_that_envoy_takes(picker: Picker, size: int) -> None:
    """Case 22: chunking; no byte still is one message."""
    async with answering(picker, JSON) as (stream, _):
        await stream.send(messages.response_body(b"x" * size, end=True))
        echoed, sizes = await stream.streamed("response_body")
    assert len(echoed) == size
    assert len(sizes) >= max(1, size // 65_536)


async def test_events_cut_at_every_byte_are_sent_on_unchanged(picker: Picker) -> None:
    """Case S: SSE split at every byte offset; CRLF; no space; two usages; an error."""
    text = (
        b'data: {"choices":[{"delta":{"content":"a"}}]}\r\n\r\n'
        b'data:{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
        b'event: error\ndata: {"error":{"message":"x"}}\n\n'
    )
    async with answering(picker, EVENTS) as (stream, _):
        for at in range(len(text)):
            await stream.send(messages.response_body(text[at : at + 1]))
        assert await stream.echoed(len(text)) == text
        await stream.send(messages.response_body(b"", end=True))
        assert (await stream.streamed("response_body"))[0] == b""


async def test_headers_that_frame_an_answer_or_come_twice_are_not_touched(picker: Picker) -> None:
    """Case T: Set-Cookie twice; transfer-encoding from upstream."""
    async with picker.stream() as stream:
        await routed(stream, completion())
        pairs = [*JSON.items(), ("set-cookie", "a=1"), ("set-cookie", "b=2"), ("transfer-encoding", "chunked")]
        await stream.send(messages.response_headers(pairs))
        mutation = (await stream.reply("response_headers")).response_headers.response.header_mutation
    touched = {option.header.key.lower() for option in mutation.set_headers} | set(mutation.remove_headers)
    assert not touched & {"set-cookie", "transfer-encoding"}


async def test_an_answer_of_headers_alone_is_let_pass(picker: Picker) -> None:
    """Case U: a response without a body."""
    async with picker.stream() as stream:
        await routed(stream, completion())
        await stream.send(messages.response_headers({":status": "204"}, end=True))
        await stream.reply("response_headers")


async def test_trailers_end_an_answer(picker: Picker) -> None:
    """Case V: response trailers, behind a body and alone."""
    for body in (b"x", b""):
        async with answering(picker, JSON) as (stream, _):
            if body:
                await stream.send(messages.response_body(body))
                assert await stream.echoed(len(body)) == body
            await stream.send(messages.response_trailers())
            await stream.reply("response_trailers")


@pytest.mark.feature("test-header")
async def test_who_served_is_told_to_conformance_tests(picker: Picker) -> None:
    """Case W: x-gateway-destination-endpoint-served."""
    async with picker.stream() as stream:
        sent = {**HEADERS, "test-epp-endpoint-selection": "127.0.0.1"}
        pick = (await routed(stream, completion(), sent=sent)).pick
        await stream.send(messages.response_headers(JSON, served=pick))
        reply = await stream.reply("response_headers")
    told = mutated({}, reply.response_headers.response.header_mutation)
    assert told["x-conformance-test-served-endpoint"] == pick
