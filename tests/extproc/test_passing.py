"""Answers on their way to the client: what Envoy sends piece by piece, and what it gets back."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st

from extproc import codec
from extproc.exchange import exchange
from extproc.stream import AnswerHeaders, PeerProtocolError
from protos import ext_proc_pb2
from tests.extproc.answers import CHAT, CHAT_WITHOUT, LAST, ROLE, STREAMS, chunk, named, stream, usage
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import body_message, header_map

SSE = {":status": "200", "content-type": "text/event-stream; charset=utf-8"}
JSON = {":status": "200", "content-type": "application/json"}


def headers_message(headers: Mapping[str, str], *, withhold: bool | None = None, end_of_stream: bool = False) -> bytes:
    message = ext_proc_pb2.ProcessingRequest(
        response_headers=ext_proc_pb2.HttpHeaders(headers=header_map(headers), end_of_stream=end_of_stream)
    )
    if withhold is not None:
        message.metadata_context.filter_metadata["tidegate"].update({"withhold": withhold, "pool": "p"})
    return message.SerializeToString()


def piece_message(body: bytes, *, end_of_stream: bool = False) -> bytes:
    sent = ext_proc_pb2.HttpBody(body=body, end_of_stream=end_of_stream)
    return ext_proc_pb2.ProcessingRequest(response_body=sent).SerializeToString()


class Passed:
    """What Envoy makes of the replies, after its ``ProcessorState`` in mode STREAMED."""

    def __init__(self) -> None:
        self.body = b""
        self.told: list[dict[str, Any]] = []
        self.replies: list[ext_proc_pb2.ProcessingResponse] = []
        self.closed = False

    def take(self, reply: bytes, sent: bytes | None) -> None:
        response = ext_proc_pb2.ProcessingResponse.FromString(reply)
        self.replies.append(response)
        assert response.HasField("response_headers" if sent is None else "response_body")
        if response.HasField("dynamic_metadata"):
            namespaces = MessageToDict(response.dynamic_metadata)
            assert list(namespaces) == ["tidegate_answer"]
            self.told.append(namespaces["tidegate_answer"])
        if sent is not None:
            mutation = response.response_body.response.body_mutation
            kind = mutation.WhichOneof("mutation")
            self.body += sent if kind is None else b"" if kind == "clear_body" else mutation.body


async def passed(headers: Mapping[str, str], chunks: Sequence[bytes], *, end: bool = True, **more: Any) -> Passed:
    """Pass an answer; one that does not ``end`` is left open by Envoy, which then goes away."""
    sent: list[bytes | None] = [None, *chunks, *([b""] if end else [])]
    at = 0

    async def messages() -> AsyncIterator[bytes]:
        nonlocal at
        for at, body in enumerate(sent):
            last = end and at == len(sent) - 1
            yield headers_message(headers, **more) if body is None else piece_message(body, end_of_stream=last)

    result = Passed()
    async with aclosing(exchange(messages(), FakeDesk())) as replies:
        async for reply in replies:
            result.take(reply, sent[at])
    result.closed = at < len(sent) - 1
    for rest in sent[at + 1 :]:  # Envoy passes the rest on by itself
        result.body += rest or b""
    return result


async def test_an_answer_is_passed_on_as_it_is_and_told_of_at_its_end() -> None:
    result = await passed(SSE, [CHAT])
    assert result.body == CHAT
    assert result.told[-1] == {
        "over": True,
        "failed": False,
        "bytes": len(CHAT),
        "output_tokens": 2,
        "prompt_tokens": 7,
        "completion_tokens": 2,
    }


async def test_what_the_client_did_not_ask_for_is_kept_back() -> None:
    for place in range(len(CHAT)):
        result = await passed(SSE, [CHAT[:place], CHAT[place:]], withhold=True)
        assert result.body == CHAT_WITHOUT
        assert result.told[-1]["completion_tokens"] == 2


@given(st.sampled_from(sorted(STREAMS)), st.lists(st.integers(0, 3_000), max_size=6))
async def test_any_pieces_are_told_of_alike(name: str, places: list[int]) -> None:
    body, tokens, _ = STREAMS[name]
    places = sorted(min(place, len(body)) for place in places)
    chunks = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
    result = await passed(SSE, chunks)
    assert result.body == body
    assert result.told[-1].get("prompt_tokens") == tokens.prompt
    assert result.told[-1].get("cached_tokens") == tokens.cached
    assert result.told[-1]["output_tokens"] >= (tokens.completion or 0)


async def test_a_piece_that_goes_as_it_came_costs_an_empty_reply() -> None:
    result = await passed(SSE, [stream(chunk("word"), done=False)] * 100)
    plain = [reply for reply in result.replies if reply.ByteSize() <= 4]
    assert len(plain) > 75


async def test_a_long_answer_is_told_of_a_few_times() -> None:
    result = await passed(SSE, [stream(chunk("word"), done=False)] * 2_000)
    assert len(result.told) < 50
    for before, after in zip(result.told, result.told[1:], strict=False):
        assert after["bytes"] <= before["bytes"] * 1.25 + 500 or after is result.told[-1]


async def test_the_length_that_an_answer_says_is_taken_away_where_it_may_shrink() -> None:
    length = {"content-length": "99"}
    (removed,) = [
        (await passed({**SSE, **length}, [CHAT], withhold=True)).replies[0].response_headers.response.header_mutation
    ]
    assert list(removed.remove_headers) == ["content-length"]
    for headers, withhold in (({**SSE, **length}, False), ({**JSON, **length}, True)):
        reply = (await passed(headers, [b"{}"], withhold=withhold)).replies[0]
        assert not reply.response_headers.HasField("response")


@pytest.mark.parametrize(("event", "failed"), [({"error": {"message": "no"}}, True), (LAST, False)])
async def test_an_error_inside_is_told_of_at_once(event: dict[str, Any], failed: bool) -> None:
    result = await passed(SSE, [stream(chunk("a"), done=False), stream(event, done=False)], end=False)
    assert result.told[-1]["failed"] is failed
    assert not any(told["over"] for told in result.told)


async def test_an_answer_that_breaks_off_has_told_of_what_there_was() -> None:
    words = [stream(chunk("word"), done=False)] * 60
    result = await passed(SSE, words, end=False)
    last = result.told[-1]
    assert not last["over"]
    assert "completion_tokens" not in last
    assert last["output_tokens"] * len(b"".join(words)) / last["bytes"] == pytest.approx(60, rel=0.1)


async def test_usage_that_is_not_of_all_is_not_told_as_if_it_were() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "word"}}
    result = await passed(SSE, [named(start), *[named(delta)] * 9], end=False)
    assert result.told[-1]["prompt_tokens"] == 5
    assert "completion_tokens" not in result.told[-1]
    # A server that ends its answer without saying why may have been cut off behind a proxy.
    ended = await passed(SSE, [named(start), *[named(delta)] * 9])
    assert "completion_tokens" not in ended.told[-1]
    assert ended.told[-1]["output_tokens"] == 10


async def test_a_whole_answer_is_told_of_too() -> None:
    body = json.dumps({"choices": [{"message": {"content": "abc"}}], "usage": usage(7, 2)}).encode()
    result = await passed(JSON, [body[:20], body[20:]])
    assert result.body == body
    assert result.told[-1]["completion_tokens"] == 2


@pytest.mark.parametrize("status", ["503", "404", "302", "", "100"])
async def test_an_attempt_that_failed_is_let_go_and_tells_nothing(status: str) -> None:
    result = await passed({**JSON, ":status": status}, [b'{"error":{}}'])
    assert (result.body, result.told, result.closed) == (b'{"error":{}}', [], True)


async def test_an_answer_without_a_body_is_let_go() -> None:
    result = await passed(JSON, [], end_of_stream=True)
    assert (result.body, result.told) == (b"", [])


@pytest.mark.parametrize("odd", [b"\xff", b"", body_message(), headers_message(SSE)])
async def test_what_has_no_place_in_an_answer_is_an_error(odd: bytes) -> None:
    async def messages() -> AsyncIterator[bytes]:
        yield headers_message(SSE)
        yield odd

    async with aclosing(exchange(messages(), FakeDesk())) as replies:
        await anext(replies)
        with pytest.raises(PeerProtocolError):
            await anext(replies)


def test_who_asked_is_read_from_the_decision() -> None:
    assert codec.decode(headers_message(SSE, withhold=True)) == AnswerHeaders(SSE, withhold=True)
    assert codec.decode(headers_message(SSE, withhold=False)) == AnswerHeaders(SSE)
    assert codec.decode(headers_message(SSE)) == AnswerHeaders(SSE)


async def test_a_first_event_alone_is_told_of_without_text() -> None:
    result = await passed(SSE, [stream(ROLE, done=False)], end=False)
    assert result.told == [
        {"over": False, "failed": False, "bytes": float(len(stream(ROLE, done=False))), "output_tokens": 0.0}
    ]
