"""A request on its way: when it is answered, and what of it is changed."""

import asyncio
import json
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.json_format import MessageToDict

from tests.conformance.endpoint_picker import messages
from tests.conformance.endpoint_picker.messages import (
    BUFFERED,
    DESTINATION,
    HEADERS,
    NONE,
    OBJECTIVES,
    STREAMED,
    completion,
)
from tests.conformance.endpoint_picker.picker import Picker, decided, rejected, routed
from tests.conformance.endpoint_picker.pods import Pods

UNTOUCHED = ("transfer-encoding", "host", ":authority", ":path", ":method")


def padded(size: int) -> bytes:
    """Return a request's body of exactly ``size`` bytes."""
    return completion(prompt="x" * (size - len(completion(prompt=""))))


@pytest.mark.parametrize(("size", "least"), [(1_000, 1), (62_000, 1), (62_001, 1), (125_000, 2), (3_000_000, 46)])
async def test_a_body_goes_on_whole_in_pieces_that_envoy_takes(picker: Picker, size: int, least: int) -> None:
    """Case 22: chunking."""
    sent = padded(size)
    async with picker.stream() as stream:
        await stream.send(messages.headers(), messages.body(sent))
        await stream.reply("request_headers")
        echoed, sizes = await stream.streamed("request_body")
    assert json.loads(echoed) == json.loads(sent)
    assert len(sizes) >= least


async def test_a_request_is_held_until_its_body_has_ended(picker: Picker, pods: Pods) -> None:
    """Case F: nothing is answered before the decision, because what is answered is sent on."""
    await pods.tell((0, 0.1))
    sent = completion()
    async with picker.stream() as stream:
        await stream.send(messages.headers(), messages.body(sent[:30], end=False))
        await stream.quiet()
        await stream.send(messages.body(sent[30:]))
        decided(await stream.reply("request_headers"), HEADERS)
        assert json.loads((await stream.streamed("request_body"))[0]) == json.loads(sent)


async def test_a_body_that_ends_with_an_empty_piece_is_whole(picker: Picker) -> None:
    """Case G: a large body, then an end without bytes."""
    sent = padded(150_000)
    pieces = [sent[at : at + 50_000] for at in range(0, len(sent), 50_000)]
    assert json.loads((await picker.route(*pieces, b"")).body) == json.loads(sent)


async def test_a_body_cut_anywhere_is_the_same(picker: Picker) -> None:
    """Case H: a body in pieces of one byte."""
    sent = completion("my-model", "grüße 😀")
    assert json.loads((await picker.route(*(sent[at : at + 1] for at in range(len(sent))))).body) == json.loads(sent)


async def test_a_body_that_trailers_end_is_sent_on_with_them(picker: Picker) -> None:
    """Case I: request trailers."""
    sent = completion()
    async with picker.stream() as stream:
        await stream.send(messages.headers(), messages.body(sent, end=False), messages.trailers())
        decided(await stream.reply("request_headers"), HEADERS)
        assert json.loads(await stream.echoed(len(sent), "request_body")) == json.loads(sent)
        await stream.reply("request_trailers")


async def test_only_control_headers_and_the_destination_are_changed(picker: Picker) -> None:
    """Case 21: header sanitisation, of a request."""
    sent = {
        **HEADERS,
        "x-user-data": "important",
        **dict.fromkeys(OBJECTIVES, "objective"),
        DESTINATION: "1.1.1.1:666",
        "content-length": str(len(completion())),
    }
    decision = await picker.route(completion(), sent=sent)
    assert decision.headers["x-user-data"] == "important"
    assert not set(OBJECTIVES) & set(decision.headers)
    assert decision.headers[DESTINATION] != "1.1.1.1:666"
    assert decision.headers.get("content-length", str(len(decision.body))) == str(len(decision.body))
    for name in UNTOUCHED:
        assert decision.headers.get(name) == sent.get(name)


async def test_a_header_that_is_given_twice_stays_as_it_is(picker: Picker) -> None:
    """Case J: multi-value headers."""
    pairs = [*HEADERS.items(), ("x-twice", "one"), ("x-twice", "two")]
    async with picker.stream() as stream:
        await stream.send(messages.headers(pairs), messages.body(completion()))
        mutation = (await stream.reply("request_headers")).request_headers.response.header_mutation
    assert "x-twice" not in {option.header.key for option in mutation.set_headers}
    assert "x-twice" not in mutation.remove_headers


@pytest.mark.parametrize("raw", [True, False])
async def test_headers_are_read_in_either_field_and_any_case(picker: Picker, pods: Pods, raw: bool) -> None:
    """Case 32: header reading."""
    await pods.tell((0, 0.1))
    sent = {**HEADERS, "Content-Type": "application/json", "X-Gateway-Destination-Endpoint": "1.1.1.1:666"}
    async with picker.stream() as stream:
        await stream.send(messages.headers(sent, raw=raw), messages.body(completion()))
        assert decided(await stream.reply("request_headers"), sent).headers[DESTINATION] != "1.1.1.1:666"


async def test_a_gateway_that_does_not_name_its_modes_sends_in_full_duplex(picker: Picker) -> None:
    """Case K: no protocol_config, as gateways other than Envoy."""
    assert (await picker.route(completion(), modes=None)).destinations


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/messages"])
async def test_known_apis_are_told_by_their_paths(picker: Picker, pods: Pods, path: str) -> None:
    """Case 31: parser registry."""
    known = await pods.tell((9, 0.2), (0, 0.1), (9, 0.2))
    chat = {"model": "my-model", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
    sent = completion() if path == "/v1/completions" else json.dumps(chat).encode()
    assert (await picker.route(sent, sent={**HEADERS, ":path": path})).pick == known[1]


@pytest.mark.feature("modes")
async def test_a_buffered_body_is_decided_on_when_it_is_there(picker: Picker, pods: Pods) -> None:
    """Case L: BUFFERED."""
    known = await pods.tell((9, 0.2), (0, 0.1), (9, 0.2))
    async with picker.stream() as stream:
        await stream.send(messages.headers(modes=(BUFFERED, NONE)))
        headers = await stream.reply("request_headers")
        assert not headers.HasField("dynamic_metadata")
        await stream.send(messages.body(completion()))
        reply = await stream.reply("request_body")
        assert not reply.request_body.response.HasField("body_mutation")
        assert decided(reply, HEADERS).pick == known[1]


@pytest.mark.feature("modes")
@pytest.mark.parametrize("mode", [STREAMED, NONE])
async def test_a_body_that_is_not_shown_in_time_is_decided_on_by_its_headers(
    picker: Picker, pods: Pods, mode: int
) -> None:
    """Case M: STREAMED, and NONE."""
    known = await pods.tell((9, 0.2), (0, 0.1), (9, 0.2))
    async with picker.stream() as stream:
        await stream.send(messages.headers(modes=(mode, NONE)))
        assert decided(await stream.reply("request_headers"), HEADERS).pick == known[1]
        if mode == STREAMED:
            await stream.send(messages.body(completion()))
            reply = await stream.reply("request_body")
            assert not reply.request_body.response.HasField("body_mutation")


@pytest.mark.feature("scores")
async def test_the_scores_of_all_candidates_are_told(picker: Picker, pods: Pods) -> None:
    """Case 33: endpoint scores."""
    known = await pods.tell((0, 0.1), (5, 0.5))
    told = MessageToDict((await picker.route(completion(), subset=known)).reply.dynamic_metadata)
    scores = told["envoy.lb"]["x-gateway-destination-endpoint-scores"]
    assert set(scores) == set(known)
    assert scores[known[0]] > scores[known[1]] >= 0


@pytest.mark.feature("test-header")
async def test_conformance_tests_of_gateways_choose_by_a_header(picker: Picker, pods: Pods) -> None:
    """Case N: test-epp-endpoint-selection."""
    await pods.tell((0, 0.1), (0, 0.1), (0, 0.1))
    for address in pods.addresses[:3] * 2:
        sent = {**HEADERS, "test-epp-endpoint-selection": address}
        assert (await picker.route(completion(), sent=sent)).destinations == [address]
    sent = {**HEADERS, "test-epp-endpoint-selection": "10.255.255.1:1"}
    assert (await picker.reject(completion(), sent=sent)).status == 503


async def test_a_request_that_is_given_up_harms_no_other(picker: Picker, pods: Pods) -> None:
    """Case O: client abort, while the request is held and after the decision."""
    known = await pods.tell((0, 0.1), (0, 0.1), (0, 0.1))
    for _ in range(20):
        async with picker.stream() as stream:
            await stream.send(messages.headers(), messages.body(completion()[:10], end=False))
        async with picker.stream() as stream:
            await routed(stream, completion())
    picks = [(await picker.route(completion(), subset=known)).pick for _ in range(3)]
    assert set(picks) <= set(known)


async def test_a_gateway_that_answers_by_itself_is_not_decided_for(picker: Picker) -> None:
    """Case P: a local reply while the request is held, and before there was one."""
    for begun in (True, False):
        async with picker.stream() as stream:
            if begun:
                await stream.send(messages.headers(), messages.body(b"{", end=False))
            await stream.send(messages.response_headers({":status": "403"}, end=True))
            await stream.reply("response_headers")


@pytest.mark.parametrize("service", ["", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"])
async def test_health_is_told_by_every_name_that_is_asked_for(picker: Picker, service: str) -> None:
    """Case Q: gRPC health."""
    asked = b"\x0a" + bytes([len(service)]) + service.encode() if service else b""
    async with grpc.aio.insecure_channel(picker.health) as channel, asyncio.timeout(10):
        check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert await check(asked) == b"\x08\x01"


async def test_what_is_too_large_or_malformed_is_refused_and_never_let_through(picker: Picker) -> None:
    """Case R: no refusal ends without an answer to the client."""
    for sent in (b"{", b"[]", b"\xff\xfe", b'{"model": 7, "prompt": "x"}'):
        async with picker.stream() as stream:
            await stream.send(messages.headers(), messages.body(sent))
            assert 400 <= rejected(await stream.reply("immediate_response")).status < 500
