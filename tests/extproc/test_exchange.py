import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc import apis, codec
from extproc.body import ParsedBody
from extproc.exchange import Abandoned, exchange
from extproc.stream import PeerProtocolError
from protos import ext_proc_pb2
from tests.extproc.desks import ADDRESSES, FakeDesk
from tests.extproc.envoy_model import (
    HELLO,
    POST,
    Envoy,
    ask,
    body_message,
    feed,
    header_map,
    headers_message,
    join,
    whole_message,
)
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.prompt import Prompt


def _chat(model: str = "m", **fields: object) -> bytes:
    messages = [{"role": "user", "content": "hello"}]
    return json.dumps({"model": model, "messages": messages, **fields}).encode()


@pytest.mark.parametrize("exchanges", [1, 2])
async def test_a_request_is_routed_by_its_metadata(exchanges: int) -> None:
    desk = FakeDesk()

    result = await ask(desk, body=_chat(stream=True), exchanges=exchanges)

    assert (result.kind, result.clear_route_cache) == ("routed", True)
    assert result.metadata == {
        "envoy.lb": {"x-gateway-destination-endpoint": ",".join(ADDRESSES)},
        "tidegate": {
            "reservation": "r1",
            "pool": "default",
            "model": "m",
            "api": "chat_completions",
            "prompt_tokens": 15,
            "count_source": "sampled",
            "uncorrected_tokens": 15,
            "stream": True,
            "usage": "chat_completions",
        },
    }


async def test_a_delivered_decision_is_not_released_here() -> None:
    desk = FakeDesk()
    await ask(desk)

    assert (desk.live, desk.abandoned, desk.refusals) == ({"r1"}, [], [])


async def test_texts_and_token_ids_are_counted_together() -> None:
    desk = FakeDesk()
    body = json.dumps({"model": "m", "prompt": ["four", [1, 2, 3]], "max_tokens": 10, "n": 3}).encode()

    await ask(desk, {**POST, ":path": "/v1/completions"}, body)

    assert desk.counted == [("m", Prompt(("four",), None, 3))]
    (request,) = desk.requests
    assert (request.id, request.api, request.model, request.stream) == ("r1", "completions", "m", False)
    assert request.prompt == TokenCount(7, CountSource.SAMPLED, 4)
    assert request.max_output_tokens == 2 * 3 * 10


async def test_token_ids_alone_are_no_text() -> None:
    desk = FakeDesk()

    await ask(desk, {**POST, ":path": "/v1/embeddings"}, b'{"model": "m", "input": [1, 2, 3]}')

    assert desk.counted == [("m", Prompt((), None, 3))]
    assert desk.requests[0].prompt.tokens == 3
    assert desk.requests[0].max_output_tokens == 0


async def test_an_unknown_model_is_answered_with_404() -> None:
    desk = FakeDesk()

    result = await ask(desk, body=_chat("missing"))

    assert (result.kind, result.status, result.details) == ("answered", 404, "tidegate_unknown_model")
    assert result.headers == {"content-type": "application/json"}
    assert result.fault == {
        "message": 'The model "missing" does not exist.',
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert result.metadata == {"tidegate": {"api": "chat_completions", "model": "missing"}}
    assert desk.refusals == [("chat_completions", "missing", "", 404, "unknown_model")]


async def test_a_pool_without_endpoints_is_answered_with_503() -> None:
    desk = FakeDesk()

    result = await ask(desk, body=_chat("empty"))

    assert (result.status, result.headers["retry-after"]) == (503, "1")
    assert result.metadata == {"tidegate": {"api": "chat_completions", "model": "empty", "pool": "default"}}
    assert desk.refusals == [("chat_completions", "empty", "default", 503, "no_endpoints")]


@pytest.mark.parametrize(
    ("headers", "api", "status", "reason"),
    [
        ({":path": "/v1/images"}, "", 404, "unknown_path"),
        ({":method": "GET"}, "", 405, "method_not_allowed"),
        ({"content-encoding": "compress"}, "chat_completions", 415, "unsupported_encoding"),
    ],
)
async def test_what_the_headers_rule_out_is_answered_before_the_body(
    headers: Mapping[str, str], api: str, status: int, reason: str
) -> None:
    desk = FakeDesk()

    result = await join(desk, Envoy({**POST, **headers}, HELLO), [headers_message({**POST, **headers})])

    assert (result.kind, result.status, result.details) == ("answered", status, f"tidegate_{reason}")
    assert desk.refusals == [(api, "", "", status, reason)]
    assert desk.requests == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", HELLO),
        ("/v1/chat/completions", _chat("missing")),
        ("/v1/chat/completions", _chat("empty")),
        ("/v1/chat/completions", b"{"),
        ("/v1/embeddings", b'{"model": "m", "input": [1, 2, 3]}'),
        ("/v1/images", HELLO),
        ("/v1/models", HELLO),
    ],
)
async def test_one_exchange_comes_to_what_two_come_to(path: str, body: bytes) -> None:
    one, two = FakeDesk(), FakeDesk()

    result = await ask(one, {**POST, ":path": path}, body, exchanges=1)

    assert result == await ask(two, {**POST, ":path": path}, body)
    assert result.kind in {"routed", "answered"}
    assert (one.requests, one.refusals, one.live) == (two.requests, two.refusals, two.live)


async def test_a_malformed_body_is_answered_with_400() -> None:
    desk = FakeDesk()

    result = await ask(desk, body=b"{")

    assert (result.kind, result.status, result.details) == ("answered", 400, "tidegate_invalid_request")
    assert result.metadata == {"tidegate": {"api": "chat_completions"}}


async def test_a_request_without_a_body_is_answered_in_the_headers_phase() -> None:
    desk = FakeDesk()

    result = await ask(desk, body=None)

    assert (result.kind, result.status, result.fault["code"]) == ("answered", 400, "empty_body")


async def test_a_request_that_needs_no_body_is_routed_in_the_headers_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    api = apis.Api("status", "GET", "/v1/status", lambda _: ParsedBody("m", ()))
    monkeypatch.setattr(apis, "APIS", {api.path: api})

    result = await ask(FakeDesk(), {":method": "GET", ":path": "/v1/status"}, None)

    assert (result.kind, result.metadata["tidegate"]["api"]) == ("routed", "status")


async def test_the_body_behind_a_decompressor_is_whole_without_an_end_of_stream() -> None:
    messages = [headers_message(), body_message(end_of_stream=False)]

    assert (await join(FakeDesk(), Envoy(POST, HELLO), messages)).kind == "routed"


async def test_an_unexpected_fault_fails_the_request_and_is_never_let_through() -> None:
    desk = FakeDesk()
    desk.fault = RuntimeError("a bug")

    result = await ask(desk)

    assert (result.kind, result.error) == ("failed", desk.fault)


@pytest.mark.parametrize("sent", [[], [headers_message()]])
async def test_an_envoy_that_ends_its_side_early_gets_no_ok(sent: list[bytes]) -> None:
    result = await join(FakeDesk(), Envoy(POST, HELLO), sent)

    assert result.kind == "failed"
    assert isinstance(result.error, Abandoned)


@pytest.mark.parametrize(
    "sent",
    [
        [b"\xff"],
        [b""],
        [body_message()],
        [headers_message(), headers_message()],
        [headers_message(mode=4)],
        [whole_message(mode=1)],
        [headers_message(), whole_message()],
        [ext_proc_pb2.ProcessingRequest(response_body=ext_proc_pb2.HttpBody()).SerializeToString()],
    ],
    ids=["garbage", "empty", "body-first", "headers-twice", "full-duplex", "streamed", "headers-and-whole", "response"],
)
async def test_an_envoy_that_breaks_the_protocol_gets_no_ok(sent: list[bytes]) -> None:
    desk = FakeDesk()

    result = await join(desk, Envoy(POST, HELLO), sent)

    assert result.kind == "failed"
    assert isinstance(result.error, PeerProtocolError)
    assert not desk.live


async def test_a_reply_that_cannot_be_encoded_releases_the_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise ValueError("cannot be encoded")

    monkeypatch.setattr(codec, "decision_on_body", fail)
    desk = FakeDesk()

    result = await ask(desk)

    assert result.kind == "failed"
    assert (desk.live, desk.abandoned) == (set(), ["r1"])


@pytest.mark.parametrize("taken", [0, 1, 2, 3])
async def test_a_reply_counts_as_delivered_when_the_next_is_asked_for(taken: int) -> None:
    desk = FakeDesk()
    sent = feed([headers_message(), body_message()])

    async with aclosing(sent), aclosing(exchange(sent, desk)) as replies:
        for _ in range(taken):
            await anext(replies, None)

    assert desk.abandoned == (["r1"] if taken == 2 else [])
    assert desk.live == ({"r1"} if taken == 3 else set())


class _Cancelling:
    """Cancels the task that is running, at the ``at``-th of the points at which it could be."""

    def __init__(self, at: int) -> None:
        self.at, self.passed = at, 0

    async def point(self) -> None:
        if self.passed == self.at:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        self.passed += 1
        await asyncio.sleep(0)


class _CancellingDesk(FakeDesk):
    def __init__(self, cancelling: _Cancelling) -> None:
        super().__init__()
        self.cancelling = cancelling

    async def count(self, model: str, prompt: Prompt, pool: str = "") -> TokenCount:
        await self.cancelling.point()
        return TokenCount(1, CountSource.EXACT)


async def _messages(cancelling: _Cancelling) -> AsyncIterator[bytes]:
    for message in (headers_message(), body_message()):
        await cancelling.point()
        yield message


AWAITS = ["receive headers", "write", "receive body", "count", "write"]


@pytest.mark.parametrize("at", range(len(AWAITS) + 1), ids=[*AWAITS, "never"])
async def test_a_cancellation_at_any_await_releases_what_was_reserved_once(at: int) -> None:
    cancelling = _Cancelling(at)
    desk = _CancellingDesk(cancelling)

    async def transport() -> None:
        async with aclosing(exchange(_messages(cancelling), desk)) as replies:
            async for _ in replies:
                await cancelling.point()

    (outcome,) = await asyncio.gather(asyncio.create_task(transport()), return_exceptions=True)

    assert cancelling.passed == min(at + 1, len(AWAITS))
    assert isinstance(outcome, asyncio.CancelledError) == (at < len(AWAITS))
    assert desk.abandoned == (["r1"] if at == len(AWAITS) - 1 else [])
    assert desk.live == ({"r1"} if at == len(AWAITS) else set())


messages = st.one_of(
    st.binary(max_size=8),
    st.booleans().map(lambda alone: headers_message(end_of_stream=alone)),
    st.sampled_from(["/", "/v1/embeddings"]).map(lambda path: headers_message({**POST, ":path": path})),
    st.sampled_from([HELLO, b"", b"{", _chat("missing"), _chat("empty")]).map(body_message),
    st.just(
        ext_proc_pb2.ProcessingRequest(
            response_headers=ext_proc_pb2.HttpHeaders(headers=header_map({}))
        ).SerializeToString()
    ),
)


@given(st.lists(messages, max_size=4))
def test_no_sequence_of_messages_is_let_through_or_leaks(sent: list[bytes]) -> None:
    desk = FakeDesk()

    result = asyncio.run(join(desk, Envoy(POST, HELLO), sent))

    assert result.kind in {"routed", "answered", "failed"}
    assert len(desk.live) == (result.kind == "routed")


@given(st.sampled_from([HELLO, b"", b"{", _chat("missing"), _chat("empty")]), st.lists(messages, max_size=2))
def test_nothing_that_follows_a_whole_request_undoes_its_answer(body: bytes, sent: list[bytes]) -> None:
    desk = FakeDesk()

    result = asyncio.run(join(desk, Envoy(POST, body, 1), [whole_message(body=body), *sent]))

    assert result.kind in {"routed", "answered"}
    assert len(desk.live) == (result.kind == "routed")
