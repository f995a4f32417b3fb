"""Models that engines know by other names, at the endpoint picker: the request is changed, and its answer back."""

import json

import pytest

from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import HELLO, POST
from tests.extproc.gateway_model import (
    BUFFERED,
    DESTINATION,
    DUPLEX,
    NONE,
    RESPONSE_TRAILERS,
    STREAMED,
    FakeGateway,
    piece,
    request_headers,
    response_headers,
    response_piece,
    tell,
)
from tests.extproc.test_picker_exchange import BOTH, mutation
from tidegate.scheduling.routes import Route


def renaming() -> FakeDesk:
    desk = FakeDesk()
    desk.follow(Route("default", model="m", rewrite_model="another"))
    return desk


async def test_a_model_is_asked_for_by_the_name_that_its_route_gives_it() -> None:
    desk, gateway = renaming(), FakeGateway()
    length = {**POST, "content-length": str(len(HELLO))}
    told = await tell(request_headers(length), piece(), desk=desk, gateway=gateway)
    ((body, end),) = told.echoed()
    assert (json.loads(body), end) == ({**json.loads(HELLO), "model": "another"}, True)
    assert mutation(told)[0] == {DESTINATION: BOTH, "content-length": str(len(body))}
    assert (desk.requests[0].model, gateway.held) == ("another", 0)


async def test_a_buffered_body_is_replaced_as_a_whole() -> None:
    told = await tell(request_headers(modes=(BUFFERED, NONE)), piece(), desk=renaming())
    response = told.decision.request_body.response
    assert json.loads(response.body_mutation.body) == {**json.loads(HELLO), "model": "another"}
    assert mutation(told, "request_body") == ({DESTINATION: BOTH}, [])


async def test_what_no_route_takes_stays_as_it_is() -> None:
    desk = FakeDesk()
    desk.follow(Route("default", model="other", rewrite_model="another"))
    told = await tell(request_headers(), piece(), desk=desk)
    assert told.echoed() == [(HELLO, True)]


ANSWERED = {":status": "200", "content-type": "application/json", "content-length": "30"}


@pytest.mark.parametrize("trailed", [False, True])
async def test_an_answer_in_full_duplex_names_the_model_that_was_asked_for(trailed: bool) -> None:
    pieces = [response_piece(part, end=False) for part in (b'{"mod', b'el": "ano', b'ther"}', b'{"mod')]
    end = RESPONSE_TRAILERS if trailed else response_piece(b"", end=True)
    told = await tell(request_headers(), piece(), response_headers(ANSWERED), *pieces, end, desk=renaming())
    answered = [reply for reply in told.replies if reply.WhichOneof("response") == "response_headers"]
    assert list(answered[0].response_headers.response.header_mutation.remove_headers) == ["content-length"]
    streamed = [
        reply.response_body.response.body_mutation.streamed_response
        for reply in told.replies
        if reply.WhichOneof("response") == "response_body"
    ]
    assert b"".join(one.body for one in streamed) == b'{"model":"m"}{"mod'
    assert streamed[-1].end_of_stream is not trailed
    assert told.error is None


@pytest.mark.parametrize(
    ("modes", "more"), [((DUPLEX, STREAMED), {}), ((DUPLEX, DUPLEX), {"content-encoding": "gzip"})]
)
async def test_an_answer_that_is_not_ours_to_change_or_compressed_stays_as_it_is(
    modes: tuple[int, int], more: dict[str, str]
) -> None:
    answer = (response_headers({**ANSWERED, **more}), response_piece(b'{"model": "another"}', end=True))
    told = await tell(request_headers(modes=modes), piece(), *answer, desk=renaming())
    (headers,) = [one.response_headers for one in told.replies if one.WhichOneof("response") == "response_headers"]
    assert not headers.response.header_mutation.remove_headers
    (body,) = [one.response_body for one in told.replies if one.WhichOneof("response") == "response_body"]
    assert body.response.body_mutation.streamed_response.body in {b"", b'{"model": "another"}'}
