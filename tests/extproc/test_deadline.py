import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.deadline import HEADER, MOST, of_headers, told
from extproc.errors import ApiError
from extproc.exchange import exchange
from protos import ext_proc_pb2
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import HELLO, POST, Envoy, ask, feed, join
from tidegate.tokens.count import CountSource, TokenCount
from tidegate.tokens.prompt import Prompt


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1", 1.0), ("2.5", 2.5), (".25", 0.25), ("30.", 30.0), (" 5 ", 5.0), ("0.001", 0.001), ("86400", 86_400.0)],
)
def test_seconds_are_read_with_decimals(text: str, seconds: float) -> None:
    assert of_headers({HEADER: text}) == seconds


def test_without_the_header_there_is_no_deadline() -> None:
    assert of_headers({}) is None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "x",
            "-1",
            "+1",
            "1e3",
            "nan",
            "inf",
            "0",
            "0.0",
            "0.0001",
            "86401",
            "9" * 400,
            "5s",
            "1,2",
            "1 2",
            "1_0",
        ),
        *("\u0661", "0x10", "1.2.3", "."),
    ],
)
def test_what_is_no_such_number_is_refused_by_the_headers_name(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        of_headers({HEADER: text})

    assert (caught.value.status, caught.value.param) == (400, HEADER)
    assert len(text) < 4 or text not in caught.value.message


@given(st.text())
def test_whatever_a_client_writes_is_a_bounded_time_or_refused(text: str) -> None:
    try:
        seconds = of_headers({HEADER: text})
    except ApiError:
        return
    assert seconds is not None
    assert 0.001 <= seconds <= MOST


@given(st.floats(0.001, MOST))
def test_envoy_is_told_in_eight_digits_at_most(seconds: float) -> None:
    text = told(seconds)

    assert text.endswith("m")
    assert 1 <= int(text[:-1]) < 100_000_000
    assert abs(int(text[:-1]) / 1000 - seconds) <= 0.0005 + 1e-9


class SlowDesk(FakeDesk):
    """A desk that takes its time to count."""

    async def count(self, model: str, prompt: Prompt, pool: str = "") -> TokenCount:
        await asyncio.sleep(5)
        return TokenCount(1, CountSource.EXACT)


async def test_a_decision_is_not_waited_for_beyond_the_deadline() -> None:
    desk = SlowDesk()

    result = await ask(desk, {**POST, HEADER: "0.05"})

    assert (result.kind, result.status, result.fault["code"]) == ("answered", 504, "timeout")
    assert (result.fault["type"], result.fault["param"]) == ("server_error", HEADER)
    assert desk.refusals == [("chat_completions", "m", "", 504, "deadline")]
    assert desk.requests == []


async def test_anthropics_clients_are_told_in_its_form() -> None:
    body = json.dumps({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]}).encode()

    result = await ask(SlowDesk(), {**POST, ":path": "/v1/messages", HEADER: "0.05"}, body)

    assert (result.status, json.loads(result.body)["error"]["type"]) == (504, "timeout_error")


async def test_a_body_that_came_too_late_is_not_decided_on() -> None:
    desk = FakeDesk()

    async def late() -> AsyncIterator[bytes]:
        first, second = Envoy({**POST, HEADER: "0.01"}, HELLO).messages()
        yield first
        await asyncio.sleep(0.05)
        yield second

    replies = [ext_proc_pb2.ProcessingResponse.FromString(reply) async for reply in exchange(late(), desk)]

    assert replies[-1].immediate_response.status.code == 504
    assert (desk.requests, desk.live) == ([], set())


async def test_a_malformed_deadline_is_refused_before_the_body() -> None:
    desk = FakeDesk()

    result = await join(desk, Envoy(POST, HELLO), Envoy({**POST, HEADER: "soon"}, HELLO).messages()[:1])

    assert (result.kind, result.status, result.fault["param"]) == ("answered", 400, HEADER)


@pytest.mark.parametrize(("headers", "told_"), [({HEADER: "2.5"}, {"grpc-timeout": b"2500m"}), ({}, {})])
async def test_envoy_is_told_of_the_deadline_that_there_is(headers: dict[str, str], told_: dict[str, bytes]) -> None:
    messages = feed(Envoy({**POST, **headers}, HELLO).messages())

    replies = [ext_proc_pb2.ProcessingResponse.FromString(reply) async for reply in exchange(messages, FakeDesk())]

    mutation = replies[-1].request_body.response.header_mutation
    assert {option.header.key: option.header.raw_value for option in mutation.set_headers} == told_
