"""A request that finds no room waits, is told so, and holds nothing once its client is gone."""

import asyncio
import json
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.desk import Wait
from extproc.errors import ApiError
from extproc.exchange import PATIENCE_SECONDS, exchange
from extproc.waiting import ESTIMATED, HEADER, OBJECTIVE, WAITED, asker, is_batch, turned_away
from tests.extproc.desks import ADDRESSES, FakeDesk
from tests.extproc.envoy_model import HELLO, POST, Envoy, Result, ask, feed
from tests.extproc.test_passage import WITH_KEY, FakeGate
from tidegate.fleet.ledger import Reservation
from tidegate.scheduling.caller import Caller
from tidegate.scheduling.dispatch import Decision, Refusal, RefusalReason
from tidegate.scheduling.line import Asker, Turnaway, Why
from tidegate.scheduling.request import InferenceRequest


class FakeWait:
    """Waits until it is told what becomes of it."""

    seconds = 20.0
    estimate: float | None = 1.5

    def __init__(self, desk: "FullDesk", request: InferenceRequest) -> None:
        self.desk, self.request = desk, request
        self.told: asyncio.Future[Decision | Refusal | Turnaway] = asyncio.get_running_loop().create_future()
        self.left = 0

    async def over(self) -> Decision | Refusal | Turnaway:
        return await self.told

    def leave(self) -> None:
        self.left += 1

    def go(self) -> None:
        reservation = Reservation(self.request.id, "default", ADDRESSES[0], 1, 1, 0.0)
        self.desk.live.add(self.request.id)
        self.told.set_result(Decision("default", "random", ADDRESSES, reservation))


class FullDesk(FakeDesk):
    """A desk without room for anybody; it is its own waiting room."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting_room = self
        self.askers: list[Asker] = []
        self.waits: list[FakeWait] = []
        self.answer: Decision | Refusal | Turnaway | None = None
        self.came = asyncio.Event()

    def decide(self, request: InferenceRequest) -> Decision | Refusal:
        self.requests.append(request)
        return Refusal(RefusalReason.NO_ROOM, "default", request._replace(pool="default"))

    def ask(self, request: InferenceRequest, asker: Asker) -> Decision | Refusal | Turnaway | Wait:
        self.askers.append(asker)
        if self.answer is not None:
            return self.answer
        self.waits.append(FakeWait(self, request))
        self.came.set()
        return self.waits[-1]

    wait = ask


async def asked(desk: FullDesk, headers: dict[str, str] | None = None, exchanges: int = 2) -> asyncio.Task[Result]:
    """Begin an exchange, and return it once it waits."""
    running = asyncio.create_task(ask(desk, headers or POST, exchanges=exchanges))
    await asyncio.wait_for(desk.came.wait(), 5)
    return running


def turnaway(why: Why, estimate: float | None = 12.34) -> Turnaway:
    return Turnaway("default", why, estimate, 7, 9)


@pytest.mark.parametrize("exchanges", [1, 2])
async def test_envoy_is_asked_to_wait_and_the_answer_says_for_how_long_it_was(exchanges: int) -> None:
    desk = FullDesk()
    running = await asked(desk, exchanges=exchanges)
    (wait,) = desk.waits
    assert wait.request.pool == "default"
    await asyncio.sleep(0.02)
    wait.go()
    result = await running
    assert (result.kind, result.patience) == ("routed", wait.seconds + PATIENCE_SECONDS)
    told = result.metadata["tidegate"]
    assert 0.01 < float(told[WAITED]) < 1
    assert told[ESTIMATED] == "1.500"
    assert (desk.handed_over, desk.abandoned) == (["r1"], [])


async def test_nothing_is_told_of_a_wait_that_there_was_not() -> None:
    result = await ask(FakeDesk())
    assert result.patience == 0
    assert not {WAITED, ESTIMATED} & set(result.metadata["tidegate"])


async def test_a_client_that_leaves_while_its_request_waits_leaves_nothing_behind() -> None:
    desk = FullDesk()
    desk.gate = gate = FakeGate()
    running = await asked(desk, WITH_KEY)
    assert gate.held == ["r1"], "its limits count while it waits"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert desk.waits[0].left == 1
    assert (gate.held, gate.withdrawn, desk.live) == ([], ["r1"], set())


async def test_a_stream_that_ends_before_its_wait_has_begun_leaves_the_queue() -> None:
    desk = FullDesk()
    async with aclosing(feed(Envoy(POST, HELLO, 1).messages())) as sent, aclosing(exchange(sent, desk)) as replies:
        await anext(replies)
        assert desk.waits[0].left == 0
    assert desk.waits[0].left == 1


async def test_a_decision_that_is_not_delivered_after_a_wait_is_released() -> None:
    desk = FullDesk()
    async with aclosing(feed(Envoy(POST, HELLO, 1).messages())) as sent, aclosing(exchange(sent, desk)) as replies:
        await anext(replies)
        desk.waits[0].go()
        await anext(replies)
        assert desk.live == {"r1"}
    assert desk.abandoned == ["r1"]


@pytest.mark.parametrize(
    ("why", "status", "kind"),
    [
        (Why.FULL, 429, "requests"),
        (Why.TENANT_FULL, 429, "requests"),
        (Why.SHED, 429, "requests"),
        (Why.TOO_LONG, 429, "requests"),
        (Why.EXPIRED, 503, "service_unavailable"),
        (Why.STOPPING, 503, "service_unavailable"),
    ],
)
async def test_who_is_turned_away_is_told_why_and_when_to_come_again(why: Why, status: int, kind: str) -> None:
    desk = FullDesk()
    desk.answer = turnaway(why)
    result = await ask(desk)
    assert (result.kind, result.status, result.headers["retry-after"]) == ("answered", status, "9")
    assert (result.fault["type"], result.fault["code"]) == (kind, why.value)
    assert (result.fault["estimated_wait_seconds"], result.fault["queue_position"]) == (12.3, 7)
    assert desk.refusals == [("chat_completions", "m", "default", status, why.value)]
    assert result.patience == 0


async def test_anthropics_clients_are_told_in_its_form() -> None:
    desk = FullDesk()
    desk.answer = turnaway(Why.EXPIRED, None)
    body = json.dumps({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]}).encode()
    result = await ask(desk, {**POST, ":path": "/v1/messages"}, body)
    error = json.loads(result.body)["error"]
    assert (error["type"], error["queue_position"], error["estimated_wait_seconds"]) == ("overloaded_error", 7, None)


async def test_a_request_whose_own_time_was_up_is_told_that() -> None:
    desk = FullDesk()
    running = await asked(desk, {**POST, "x-request-timeout": "0.05"})
    assert desk.askers[0].until <= asyncio.get_running_loop().time() + 0.05
    await asyncio.sleep(0.06)
    desk.waits[0].told.set_result(turnaway(Why.EXPIRED))
    result = await running
    assert (result.status, result.fault["code"]) == (504, "timeout")


async def test_what_nobody_serves_any_more_after_a_wait_is_refused_as_ever() -> None:
    desk = FullDesk()
    running = await asked(desk)
    desk.waits[0].told.set_result(Refusal(RefusalReason.NO_ENDPOINTS, "default"))
    assert ((await running).status, (await running).fault["code"]) == (503, "no_endpoints")


async def test_where_nothing_waits_a_priority_changes_nothing() -> None:
    assert (await ask(FakeDesk(), {**POST, HEADER: "-1"})).kind == "routed"


@pytest.mark.parametrize(
    ("text", "priority"), [("-1", -1), ("-100", -100), ("0", 0), ("100", 0), ("+5", 0), (" -3 ", -3)]
)
async def test_a_client_may_lower_the_priority_of_its_request_and_not_raise_it(text: str, priority: int) -> None:
    desk = FullDesk()
    running = await asked(desk, {**POST, HEADER: text})
    assert desk.askers == [Asker("", priority, len(HELLO))]
    assert desk.requests == [], "it is for the queue to say whether it goes at once"
    desk.waits[0].go()
    assert (await running).kind == "routed"


@pytest.mark.parametrize("text", ["", "high", "1.5", "-101", "101", "1_0", "--1", "-1,-1", "٣"])
async def test_a_priority_that_is_none_is_refused(text: str) -> None:
    desk = FullDesk()
    result = await ask(desk, {**POST, HEADER: text})
    assert (result.status, result.fault["param"], desk.askers) == (400, HEADER, [])


@given(st.text())
def test_whatever_a_client_writes_its_priority_is_within_bounds(text: str) -> None:
    try:
        who = asker({HEADER: text}, None, 1, None)
    except ApiError:
        return
    assert -100 <= who.priority <= 0


def test_an_unknown_wait_is_told_as_unknown() -> None:
    error = json.loads(turned_away(turnaway(Why.FULL, None)).body())["error"]
    assert error["estimated_wait_seconds"] is None


def test_who_waited_in_vain_is_told_whether_anybody_was_there() -> None:
    full, nobody = turnaway(Why.EXPIRED), turnaway(Why.EXPIRED)._replace(deserted=True)
    said = [json.loads(turned_away(one).body())["error"]["message"] for one in (full, nobody)]
    assert ["no endpoint had room" in one for one in said] == [True, False]
    assert "no endpoint is there" in said[1]


OBJECTIVES = {"batch": -10, "urgent": 50}


@pytest.mark.parametrize(
    ("headers", "tier", "priority"),
    [
        ({OBJECTIVE: "batch"}, None, -10),
        ({OBJECTIVE: "urgent"}, None, 50),
        ({OBJECTIVE: "nobody-knows"}, None, 0),
        ({}, None, 0),
        ({OBJECTIVE: "urgent"}, 5, 5),
        ({OBJECTIVE: "batch"}, 5, -10),
        ({OBJECTIVE: "nobody-knows"}, 5, 5),
        ({OBJECTIVE: "urgent", HEADER: "7"}, None, 7),
        ({OBJECTIVE: "batch", HEADER: "7"}, None, -10),
    ],
)
def test_an_objective_is_a_priority_by_name_and_never_more_than_the_tiers(
    headers: dict[str, str], tier: int | None, priority: int
) -> None:
    passage: Any = None if tier is None else SimpleNamespace(caller=Caller("t", tier))
    assert asker(headers, passage, 1, None, OBJECTIVES).priority == priority
    assert is_batch(headers, passage, OBJECTIVES) is (HEADER in headers or priority < 0)


def test_without_objectives_their_header_means_nothing() -> None:
    assert asker({OBJECTIVE: "batch"}, None, 1, None).priority == 0
    assert not is_batch({OBJECTIVE: "batch"}, None)


@pytest.mark.parametrize(("objective", "refused", "priority"), [("batch", 0, -10), ("urgent", 1, 50)])
async def test_a_request_waits_with_the_priority_of_its_objective(objective: str, refused: int, priority: int) -> None:
    desk = FullDesk()
    desk.objectives = OBJECTIVES
    running = await asked(desk, {**POST, OBJECTIVE: objective})
    desk.waits[0].go()
    assert (await running).kind == "routed"
    assert [who.priority for who in desk.askers] == [priority]
    assert len(desk.requests) == refused, "batch work asks for no room past the queue"
