"""A request's way through the gate: asked before its body is read, counted before it is decided, given back once."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

import pytest

from extproc import credentials
from extproc.errors import ApiError
from extproc.exchange import exchange
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import HELLO, POST, Envoy, ask, feed, headers_message, join
from tidegate.scheduling.caller import Caller
from tidegate.scheduling.request import InferenceRequest

KEY = "sk-1"
WITH_KEY = {**POST, "authorization": f"Bearer {KEY}"}


class FakeGate:
    """Lets whoever has the key have two requests at a time."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self.withdrawn: list[str] = []

    def identify(self, headers: Mapping[str, str]) -> Caller:
        if credentials.key_of(headers) != KEY:
            raise credentials.wrong()
        return Caller("acme")

    async def admit(self, request: InferenceRequest, caller: Caller) -> Mapping[str, str]:
        if len(self.held) == 2:
            raise ApiError(429, "enough", reason="limit_exceeded", headers={"retry-after": "7"})
        self.held.append(request.id)
        return {"tenant": caller.tenant, "x-ratelimit-remaining-requests": str(2 - len(self.held))}

    def withdraw(self, request_id: str) -> None:
        self.held.remove(request_id)
        self.withdrawn.append(request_id)


class GatedDesk(FakeDesk):
    def __init__(self) -> None:
        super().__init__()
        self.gate: FakeGate = FakeGate()


@pytest.mark.parametrize("exchanges", [1, 2])
async def test_who_has_a_key_is_let_in_and_told_what_is_left(exchanges: int) -> None:
    desk = GatedDesk()
    result = await ask(desk, WITH_KEY, exchanges=exchanges)
    assert result.kind == "routed"
    told = result.metadata["tidegate"]
    assert (told["tenant"], told["x-ratelimit-remaining-requests"], told["pool"]) == ("acme", "1", "default")
    assert (desk.gate.held, desk.gate.withdrawn) == (["r1"], [])


@pytest.mark.parametrize("exchanges", [1, 2])
async def test_without_a_key_nothing_of_the_body_is_looked_at(exchanges: int) -> None:
    desk = GatedDesk()
    result = await ask(desk, POST, b"{ no json", exchanges=exchanges)
    assert (result.kind, result.status, result.fault["code"]) == ("answered", 401, "invalid_api_key")
    assert (desk.counted, desk.requests, desk.gate.held) == ([], [], [])
    assert desk.refusals == [("chat_completions", "", "", 401, "unauthenticated")]


async def test_in_two_exchanges_the_body_is_never_asked_for() -> None:
    result = await join(GatedDesk(), Envoy(POST, HELLO), [headers_message()])
    assert (result.kind, result.status) == ("answered", 401)


async def test_a_limit_in_the_way_is_told_before_anything_is_decided() -> None:
    desk = GatedDesk()
    results = [await ask(desk, WITH_KEY) for _ in range(3)]
    assert [result.status for result in results] == [0, 0, 429]
    assert results[2].headers["retry-after"] == "7"
    assert len(desk.requests) == 2
    assert (desk.gate.held, desk.gate.withdrawn) == (["r1", "r2"], [])


@pytest.mark.parametrize("model", ["missing", "empty"])
async def test_what_was_taken_for_a_request_that_is_then_refused_comes_back(model: str) -> None:
    desk = GatedDesk()
    result = await ask(desk, WITH_KEY, HELLO.replace(b'"m"', f'"{model}"'.encode()))
    assert result.kind == "answered"
    assert (desk.gate.held, desk.gate.withdrawn) == ([], ["r1"])


async def test_what_was_taken_comes_back_when_deciding_fails() -> None:
    desk = GatedDesk()
    desk.fault = RuntimeError("a bug")
    result = await ask(desk, WITH_KEY)
    assert result.kind == "failed"
    assert (desk.gate.held, desk.gate.withdrawn) == ([], ["r1"])


async def test_what_was_taken_for_a_decision_that_is_not_delivered_comes_back_once() -> None:
    desk = GatedDesk()
    messages = Envoy(WITH_KEY, HELLO, 1).messages()
    async with aclosing(feed(messages)) as sent, aclosing(exchange(sent, desk)) as replies:
        await anext(replies)
        assert desk.gate.held == ["r1"]
    assert (desk.gate.held, desk.gate.withdrawn, desk.abandoned) == ([], ["r1"], ["r1"])


async def test_a_client_that_leaves_before_the_decision_took_nothing() -> None:
    desk = GatedDesk()

    class LeavingError(Exception):
        pass

    async def leave(*_: object) -> None:
        await asyncio.sleep(0)
        raise LeavingError

    desk.count = leave  # type: ignore[method-assign,assignment]
    result = await ask(desk, WITH_KEY)
    assert isinstance(result.error, LeavingError)
    assert (desk.gate.held, desk.gate.withdrawn) == ([], [])
