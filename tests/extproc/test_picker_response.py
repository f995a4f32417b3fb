import pytest

from extproc.picker_codec import PIECE_BYTES
from tests.extproc.desks import ADDRESSES, FakeDesk
from tests.extproc.envoy_model import POST
from tests.extproc.gateway_model import (
    BUFFERED,
    DESTINATION,
    DUPLEX,
    NONE,
    PARTIAL,
    RESPONSE_TRAILERS,
    STREAMED,
    FakeGateway,
    piece,
    request_headers,
    response_headers,
    response_piece,
    tell,
)


async def test_the_reservation_lives_until_the_stream_ends() -> None:
    desk, gateway = FakeDesk(), FakeGateway()
    answer = b'{"usage": {"prompt_tokens": 7}}'
    told = await tell(
        request_headers({**POST, "x-request-id": "abc"}),
        piece(),
        response_headers({":status": "200", "set-cookie": "a", "content-type": "application/json"}),
        response_piece(answer[:9]),
        response_piece(answer[9:]),
        response_piece(b"", end=True),
        desk=desk,
        gateway=gateway,
    )
    assert told.error is None
    assert told.kinds == ["request_headers", "request_body", "response_headers", *["response_body"] * 3]
    assert not told.replies[2].response_headers.HasField("response")
    assert told.echoed("response_body") == [(answer[:9], False), (answer[9:], False), (b"", True)]
    assert (desk.live, desk.abandoned, gateway.open) == ({"r1"}, [], [])
    (picked,) = gateway.picked
    assert (picked.status, picked.whole, picked.served, picked.request_id) == (200, True, "", "abc")
    assert picked.first_token_seconds is not None
    assert picked.seconds is not None
    assert picked.seconds >= picked.first_token_seconds >= 0
    assert picked.answer is not None
    assert picked.answer.tokens.prompt == 7


async def test_an_answer_that_breaks_off_is_not_whole() -> None:
    gateway = FakeGateway()
    await tell(request_headers(), piece(), response_headers(), response_piece(b"x"), gateway=gateway)
    assert [(picked.whole, picked.seconds) for picked in gateway.picked] == [(False, None)]


async def test_an_answer_whose_body_is_not_sent_counts_as_whole() -> None:
    gateway = FakeGateway()
    await tell(request_headers(modes=(DUPLEX, NONE)), piece(), response_headers(), gateway=gateway)
    assert [(picked.whole, picked.answer, picked.seconds) for picked in gateway.picked] == [(True, None, None)]


@pytest.mark.parametrize("mode", [STREAMED, BUFFERED, PARTIAL])
async def test_the_answers_pieces_are_let_pass_where_they_are_not_to_be_sent_back(mode: int) -> None:
    told = await tell(
        request_headers(modes=(DUPLEX, mode)), piece(), response_headers(), response_piece(b"x"), RESPONSE_TRAILERS
    )
    assert told.kinds[2:] == ["response_headers", "response_body", "response_trailers"]
    assert not told.replies[3].response_body.HasField("response")


async def test_a_large_piece_of_an_answer_is_sent_back_in_pieces_too() -> None:
    body = b"y" * (2 * PIECE_BYTES + 1)
    told = await tell(request_headers(), piece(), response_headers(), response_piece(body, end=True))
    assert [(len(part), end) for part, end in told.echoed("response_body")] == [
        (PIECE_BYTES, False),
        (PIECE_BYTES, False),
        (1, True),
    ]


async def test_control_headers_of_an_engine_are_taken_out() -> None:
    told = await tell(request_headers(), piece(), response_headers({":status": "200", DESTINATION: "x", "a": "b"}))
    assert list(told.replies[-1].response_headers.response.header_mutation.remove_headers) == [DESTINATION]


async def test_who_really_served_is_taken_note_of() -> None:
    gateway = FakeGateway()
    for served in (*ADDRESSES, "nonsense"):
        metadata = {"envoy.lb": {"x-gateway-destination-endpoint-served": served}}
        await tell(request_headers(), piece(), response_headers(metadata=metadata), gateway=gateway)
    assert gateway.elsewhere == [ADDRESSES[1]]
    assert [picked.served for picked in gateway.picked] == [*ADDRESSES, ""]


@pytest.mark.parametrize("before", [(), (request_headers(),), (request_headers(), piece(end=False))])
async def test_a_gateway_that_answers_by_itself_is_let(before: tuple[bytes, ...]) -> None:
    desk, gateway = FakeDesk(), FakeGateway()
    told = await tell(
        *before, response_headers(modes=(DUPLEX, DUPLEX)), response_piece(b"no", end=True), desk=desk, gateway=gateway
    )
    assert told.kinds == ["response_headers", "response_body"]
    assert (told.error, desk.requests, gateway.picked, gateway.held) == (None, [], [], 0)
