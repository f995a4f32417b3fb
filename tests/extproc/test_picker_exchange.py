import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc import picker_exchange
from extproc.exchange import Abandoned
from extproc.picker_codec import PIECE_BYTES
from extproc.picker_exchange import PickerExchange
from extproc.picker_gateway import Settings
from extproc.picker_stream import Phase
from extproc.stream import PeerProtocolError
from protos import ext_proc_pb2
from tests.extproc.desks import ADDRESSES, FakeDesk
from tests.extproc.envoy_model import HELLO, POST
from tests.extproc.gateway_model import (
    BUFFERED,
    DESTINATION,
    GRPC,
    NONE,
    PARTIAL,
    RESPONSE_TRAILERS,
    STREAMED,
    TRAILERS,
    FakeGateway,
    Told,
    piece,
    request_headers,
    response_headers,
    response_piece,
    tell,
)
from tidegate.scheduling.dispatch import Decision, Refusal, RefusalReason
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.subset import Subset
from tidegate.tokens.count import TokenCount
from tidegate.tokens.prompt import Prompt

BOTH = ",".join(ADDRESSES)
GET = {":method": "GET", ":path": "/v1/models"}


def mutation(told: Told, kind: str = "request_headers") -> tuple[dict[str, str], list[str]]:
    found = getattr(told.decision, kind).response.header_mutation
    assert all(option.append_action == 2 and not option.header.value for option in found.set_headers)
    set_headers = {option.header.key: option.header.raw_value.decode() for option in found.set_headers}
    return set_headers, list(found.remove_headers)


async def test_in_full_duplex_the_headers_are_answered_when_the_body_has_ended() -> None:
    desk, gateway = FakeDesk(), FakeGateway()
    cut = HELLO.index(b"hello") + 2

    waiting = await tell(request_headers(), piece(HELLO[:cut], end=False), desk=desk, gateway=gateway)
    assert (waiting.replies, type(waiting.error)) == ([], Abandoned)

    told = await tell(request_headers(), piece(HELLO[:cut], end=False), piece(HELLO[cut:]), desk=desk, gateway=gateway)
    assert told.kinds == ["request_headers", "request_body"]
    assert told.metadata == {"envoy.lb": {DESTINATION: BOTH}}
    assert mutation(told) == ({DESTINATION: BOTH}, [])
    assert told.decision.request_headers.response.clear_route_cache
    assert told.echoed() == [(HELLO, True)]
    assert told.error is None
    assert desk.requests[0].prompt.tokens == 15
    assert (desk.abandoned, gateway.held) == ([], 0)


async def test_a_gateway_that_names_no_modes_is_served_in_full_duplex() -> None:
    told = await tell(request_headers(modes=None), piece())
    assert told.kinds == ["request_headers", "request_body"]
    assert told.echoed() == [(HELLO, True)]


async def test_trailers_end_a_body_as_well() -> None:
    told = await tell(request_headers(), piece(end=False), TRAILERS)
    assert told.kinds == ["request_headers", "request_body", "request_trailers"]
    assert told.echoed() == [(HELLO, False)]


@pytest.mark.parametrize(("size", "number"), [(0, 1), (62_000, 1), (62_001, 2), (125_000, 3)])
async def test_a_body_is_sent_back_in_pieces_that_envoy_takes(size: int, number: int) -> None:
    body = b"x" * size
    told = await tell(
        request_headers({**POST, ":path": "/else"}), piece(body), desk=passing_on(), gateway=FakeGateway()
    )
    sent = told.echoed()
    assert [end for _, end in sent] == [False] * (number - 1) + [True]
    assert b"".join(part for part, _ in sent) == body
    assert max(len(part) for part, _ in sent) <= PIECE_BYTES


def passing_on() -> FakeDesk:
    desk = FakeDesk()
    desk.unknown_paths = "default"
    return desk


async def test_a_request_without_a_body_is_decided_by_its_headers() -> None:
    told = await tell(request_headers({**GET, ":path": "/health"}, end_of_stream=True), desk=passing_on())
    assert told.kinds == ["request_headers"]
    assert told.metadata == {"envoy.lb": {DESTINATION: BOTH}}


async def test_the_list_of_models_is_answered_here() -> None:
    told = await tell(request_headers(GET, end_of_stream=True))
    assert told.refusal.status.code == 200
    assert [model["id"] for model in json.loads(told.refusal.body)["data"]] == ["m", "org/model"]


async def test_a_buffered_body_is_asked_for_and_decided_on() -> None:
    told = await tell(request_headers(modes=(BUFFERED, NONE)), piece(end=False), TRAILERS)
    assert told.kinds == ["request_headers", "request_body", "request_trailers"]
    assert mutation(told, "request_body") == ({DESTINATION: BOTH}, [])
    assert told.decision.request_body.response.clear_route_cache
    assert not told.decision.request_body.response.HasField("body_mutation")
    assert not told.replies[0].request_headers.HasField("response")


async def test_the_beginning_of_a_body_is_enough_where_no_more_is_sent() -> None:
    desk = FakeDesk()
    told = await tell(request_headers(modes=(PARTIAL, NONE)), piece(HELLO[:20], end=False), desk=desk)
    assert told.kinds == ["request_headers", "request_body"]
    assert (desk.requests[0].model, desk.requests[0].prompt.tokens) == ("", 5)
    whole = await tell(request_headers(modes=(PARTIAL, NONE)), piece(), desk=desk)
    assert whole.kinds == ["request_headers", "request_body"]
    assert desk.requests[1].model == "m"


@pytest.mark.parametrize("mode", [STREAMED, NONE])
async def test_a_body_that_comes_behind_the_decision_is_decided_by_its_length_and_let_pass(mode: int) -> None:
    desk = FakeDesk()
    told = await tell(
        request_headers({**POST, "content-length": "400"}, modes=(mode, mode)),
        piece(HELLO[:9], end=False),
        piece(HELLO[9:]),
        desk=desk,
    )
    assert told.kinds == ["request_headers", "request_body", "request_body"]
    assert told.metadata == {"envoy.lb": {DESTINATION: BOTH}}
    assert not told.replies[1].request_body.HasField("response")
    assert (desk.requests[0].model, desk.requests[0].prompt.tokens) == ("", 100)


async def test_control_headers_are_taken_out_and_everything_else_is_left_alone() -> None:
    sent = {
        **POST,
        "x-user-data": "kept",
        "x-llm-d-inference-objective": "high",
        "X-Gateway-Inference-Objective": "high",
        DESTINATION: "1.1.1.1:666",
        "content-length": "99",
    }
    told = await tell(request_headers(sent), piece())
    assert mutation(told) == (
        {DESTINATION: BOTH},
        ["x-gateway-inference-objective", "x-llm-d-inference-objective"],
    )


def hint(value: Any) -> Mapping[str, Mapping[str, Any]]:
    return {"envoy.lb.subset_hint": {"x-gateway-destination-endpoint-subset": value}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["10.0.0.1:8000", "10.0.0.2:8000"], Subset(frozenset(ADDRESSES))),
        ("10.0.0.1:8000, 10.0.0.2:8000", Subset(frozenset(ADDRESSES))),
        (["10.0.0.2"], Subset(hosts=frozenset({"10.0.0.2"}))),
        (
            ["[fd00:0::7]:8000", "[fd00::8]", "fd00::9"],
            Subset(frozenset({"[fd00::7]:8000"}), frozenset({"fd00::8", "fd00::9"})),
        ),
        ([1, True, {"a": "b"}, "10.0.0.1:8000"], Subset(frozenset({"10.0.0.1:8000"}))),
        ([], Subset()),
        ("", Subset()),
        (7, Subset()),
        (None, Subset()),
        ({"a": "10.0.0.1:8000"}, Subset()),
    ],
)
async def test_the_choice_is_narrowed_down_to_what_the_gateway_allows(value: Any, expected: Subset) -> None:
    desk = FakeDesk()
    await tell(request_headers(metadata=hint(value)), piece(), desk=desk)
    assert desk.requests[0].among == (expected,)


async def test_without_a_hint_nothing_is_narrowed_down() -> None:
    desk = FakeDesk()
    await tell(request_headers(metadata={"envoy.lb.subset_hint": {"other": "x"}}), piece(), desk=desk)
    assert desk.requests[0].among == ()


@pytest.mark.parametrize("obeyed", [False, True])
async def test_the_header_of_the_conformance_tests_is_obeyed_only_where_it_is_wanted(obeyed: bool) -> None:
    desk, gateway = FakeDesk(), FakeGateway(Settings(obey_tests=obeyed))
    headers = {**POST, "test-epp-endpoint-selection": "10.0.0.2,10.0.0.1:8000"}
    served = {"envoy.lb": {"x-gateway-destination-endpoint-served": "10.0.0.2:8000"}}
    told = await tell(
        request_headers(headers),
        piece(),
        response_headers(metadata=served, end_of_stream=True),
        desk=desk,
        gateway=gateway,
    )
    chosen = (Subset(frozenset({"10.0.0.1:8000"}), frozenset({"10.0.0.2"})),)
    assert desk.requests[0].among == (chosen if obeyed else ())
    set_headers = told.replies[-1].response_headers.response.header_mutation.set_headers
    told_headers = {option.header.key: option.header.raw_value for option in set_headers}
    assert told_headers == ({"x-conformance-test-served-endpoint": b"10.0.0.2:8000"} if obeyed else {})


async def test_no_endpoint_is_answered_with_503_and_a_reason() -> None:
    told = await tell(request_headers(), piece(HELLO.replace(b'"m"', b'"empty"')))
    assert told.refusal.status.code == 503
    assert told.refusal_headers == {
        "content-type": "application/json",
        "retry-after": "1",
        "x-llm-d-request-dropped-reason": "rejected-no-endpoints",
    }
    assert json.loads(told.refusal.body)["error"]["code"] == "no_endpoints"


@pytest.mark.parametrize("sent", [(piece(b"x" * 11),), (piece(b"x" * 6, end=False), piece(b"x" * 6, end=False))])
async def test_a_body_that_is_too_large_is_answered_with_413_as_soon_as_it_is(sent: tuple[bytes, ...]) -> None:
    desk, gateway = FakeDesk(), FakeGateway(Settings(max_body_bytes=10))
    told = await tell(request_headers(), *sent, desk=desk, gateway=gateway)
    assert (told.refusal.status.code, told.error, gateway.held) == (413, None, 0)
    assert desk.refusals == [("chat_completions", "", "", 413, "request_too_large")]


async def test_a_body_that_is_announced_as_too_large_is_not_waited_for() -> None:
    told = await tell(
        request_headers({**POST, "content-length": "11"}), gateway=FakeGateway(Settings(max_body_bytes=10))
    )
    assert told.refusal.status.code == 413


async def test_more_bodies_than_can_be_held_are_answered_with_429() -> None:
    gateway = FakeGateway(max_held=10)
    told = await tell(request_headers(), piece(), gateway=gateway)
    assert (told.refusal.status.code, told.refusal_headers["x-llm-d-request-dropped-reason"]) == (
        429,
        "rejected-saturated",
    )
    assert gateway.held == 0


class SlowDesk(FakeDesk):
    async def count(self, model: str, prompt: Prompt, pool: str = "") -> TokenCount:
        await asyncio.sleep(30)
        return await super().count(model, prompt)


async def test_a_decision_that_takes_too_long_is_answered_with_504_and_never_let_through() -> None:
    desk, gateway = SlowDesk(), FakeGateway(Settings(decision_seconds=0.01))
    told = await tell(request_headers(), piece(), desk=desk, gateway=gateway)
    assert (told.refusal.status.code, told.error) == (504, None)
    assert told.refusal_headers["x-llm-d-request-dropped-reason"] == "rejected-ttl-expired"
    assert (desk.live, gateway.held) == (set(), 0)


@pytest.mark.parametrize("mode", [STREAMED, NONE, PARTIAL])
async def test_where_the_model_is_needed_and_not_shown_the_gateway_is_to_blame(mode: int) -> None:
    class ManyPools(FakeDesk):
        def decide(self, request: InferenceRequest) -> Decision | Refusal:
            return super().decide(request) if request.model else Refusal(RefusalReason.UNKNOWN_MODEL)

    desk = ManyPools()
    told = await tell(request_headers(modes=(mode, NONE)), piece(HELLO[:20], end=False), desk=desk)
    assert (told.refusal.status.code, desk.refusals[0][-1]) == (503, "body_not_shown")


async def test_a_fault_of_ours_is_never_an_ok() -> None:
    desk, gateway = FakeDesk(), FakeGateway()
    desk.fault = RuntimeError("a bug")
    told = await tell(request_headers(), piece(), desk=desk, gateway=gateway)
    assert (told.error, told.replies, gateway.held) == (desk.fault, [], 0)


async def test_a_body_that_does_not_end_is_answered_with_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picker_exchange, "UPLOAD_SECONDS", 0.01)
    gateway = FakeGateway()

    async def silent() -> AsyncIterator[bytes]:
        yield request_headers()
        yield piece(b"{", end=False)
        await asyncio.sleep(30)

    replies = [reply async for reply in PickerExchange(FakeDesk(), gateway).replies(silent())]
    answer = ext_proc_pb2.ProcessingResponse.FromString(replies[-1]).immediate_response
    assert (len(replies), answer.status.code, gateway.held) == (1, 408, 0)


async def test_only_a_stream_that_has_its_decision_may_be_ended() -> None:
    held = PickerExchange(FakeDesk(), FakeGateway())

    async def sent(*messages: bytes) -> AsyncIterator[bytes]:
        for message in messages:
            yield message

    assert not held.finished
    with pytest.raises(Abandoned):
        _ = [reply async for reply in held.replies(sent(request_headers()))]
    assert not held.finished
    held = PickerExchange(FakeDesk(), FakeGateway())
    async for _ in held.replies(sent(request_headers(), piece(), response_headers())):
        pass
    assert held._stream.phase is Phase.DONE


@pytest.mark.parametrize(
    "sent",
    [
        [b"\xff"],
        [b""],
        [piece()],
        [TRAILERS],
        [request_headers(), request_headers()],
        [request_headers(), piece(), piece()],
        [request_headers(modes=(GRPC, NONE))],
        [request_headers(), piece(), response_headers(), response_headers()],
        [response_headers(), piece()],
    ],
)
async def test_a_gateway_that_breaks_the_protocol_gets_no_ok(sent: list[bytes]) -> None:
    desk, gateway = FakeDesk(), FakeGateway()
    told = await tell(*sent, desk=desk, gateway=gateway)
    assert isinstance(told.error, PeerProtocolError)
    assert (gateway.open, gateway.held) == ([], 0)


@pytest.mark.parametrize("taken", range(1, 5))
async def test_a_stream_that_is_broken_off_at_any_reply_releases_what_it_holds_once(taken: int) -> None:
    desk, gateway = FakeDesk(), FakeGateway()
    await tell(
        request_headers(), piece(), response_headers(), response_piece(b"x"), desk=desk, gateway=gateway, taken=taken
    )
    assert desk.abandoned == (["r1"] if taken <= 2 else [])
    assert len(gateway.picked) == (taken > 2)
    assert (gateway.open, gateway.held) == ([], 0)


messages = st.one_of(
    st.binary(max_size=8),
    st.builds(
        lambda alone, request, response: request_headers(end_of_stream=alone, modes=(request, response)),
        st.booleans(),
        st.integers(0, 5),
        st.integers(0, 4),
    ),
    st.builds(
        lambda body, end: piece(body, end=end),
        st.sampled_from([HELLO, b"", b"{", HELLO.replace(b'"m"', b'"empty"'), HELLO.replace(b'"m"', b'"missing"')]),
        st.booleans(),
    ),
    st.sampled_from([TRAILERS, RESPONSE_TRAILERS, response_headers(), response_headers(end_of_stream=True)]),
    st.booleans().map(lambda end: response_piece(b"x", end=end)),
)


@given(st.lists(messages, max_size=6))
def test_no_sequence_of_messages_leaks_or_is_let_through_undecided(sent: list[bytes]) -> None:
    desk, gateway = FakeDesk(), FakeGateway()

    told = asyncio.run(tell(*sent, desk=desk, gateway=gateway))

    assert (gateway.open, gateway.held) == ([], 0)
    assert len(desk.live) == len(gateway.picked)
    decided = any(reply.HasField("dynamic_metadata") for reply in told.replies)
    refused = "immediate_response" in told.kinds
    answered_elsewhere = any((kind or "").startswith("response_") for kind in told.kinds)
    assert told.error is not None or decided or refused or answered_elsewhere


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_in_any_chunking_the_same_body_comes_back(body: bytes, cuts: list[int]) -> None:
    ends = sorted({min(cut, len(body)) for cut in cuts})
    parts = [body[a:b] for a, b in zip([0, *ends], [*ends, len(body)], strict=True)]
    sent = [piece(part, end=number == len(parts) - 1) for number, part in enumerate(parts)]

    told = asyncio.run(tell(request_headers({**POST, ":path": "/else"}), *sent, desk=passing_on()))

    assert told.echoed() == [(body, True)]
