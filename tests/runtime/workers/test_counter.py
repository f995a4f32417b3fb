"""Several workers on one budget: what they take, what they hold, and what comes back when they die."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.errors import ApiError
from tests.configurations import parsed
from tests.runtime.workers.plane import FakeSeat, Plane
from tests.telemetry.entries import DECISION, entry, usage
from tidegate.fleet.events import RequestEnded, RequestReserved
from tidegate.fleet.ledger import Reservation
from tidegate.runtime.callers import hashed
from tidegate.runtime.gatekeeper import Gatekeeper
from tidegate.runtime.workers import messages, remote_till
from tidegate.runtime.workers.counter import Counter
from tidegate.runtime.workers.remote_till import RemoteTill
from tidegate.scheduling.allowance import Answer, Ask, Standing
from tidegate.scheduling.budget import Cost
from tidegate.scheduling.caller import Caller
from tidegate.scheduling.request import InferenceRequest
from tidegate.telemetry.record import parse
from tidegate.tokens.count import CountSource, TokenCount

CONFIG: dict[str, Any] = {
    "control": {"workers": 2},
    "pools": [{"name": "default", "engine": "none", "endpoints": [{"address": "127.0.0.1:1"}]}],
    "tenants": [
        {"name": "alice", "limits": {"requests_in_flight": 3, "tokens_per_minute": 1000}},
        {"name": "bob", "limits": {"requests_in_flight": 1}},
    ],
    "keys": [{"name": "a", "tenant": "alice", "hash": hashed("sk-alice")}],
}
NOTHING = Standing(None, None)


@pytest.fixture
def plane() -> Plane:
    made = Plane(0)
    made.team._config = b""
    made.team.configure(parsed(CONFIG))
    for number in range(2):
        made.seats.append(made._seat(number))
    return made


def asked(number: str, tenant: str = "alice", tokens: int = 100) -> messages.Asked:
    return messages.Asked(Ask(number, tenant, (f"tenant:{tenant}",), Cost(tokens, 0)))


def answer(plane: Plane, seat: FakeSeat, number: str, tenant: str = "alice", tokens: int = 100) -> Answer:
    plane.team.received(seat, asked(number, tenant, tokens))
    told = seat.sent[-1]
    assert isinstance(told, messages.Answered)
    assert told.id == number
    assert told.answer is not None
    return told.answer


def reserved(number: str) -> messages.Reserved:
    return messages.Reserved(RequestReserved(Reservation(number, "default", "127.0.0.1:1", 100, 0, 0.0)))


def left(plane: Plane, tenant: str = "alice") -> dict[str, int]:
    page = json.loads(json.dumps(plane.tenants.describe()))
    return {
        limit["limit"]: limit["left"]
        for one in page["tenants"]
        if one["name"] == tenant
        for budget in one["budgets"]
        for limit in budget["limits"]
    }


def test_workers_take_from_one_budget_and_are_told_how_it_stands(plane: Plane) -> None:
    one, two = plane.seats
    assert answer(plane, one, "r1").exceeded is None
    assert answer(plane, two, "r2").exceeded is None
    third = answer(plane, one, "r3", tokens=300)
    assert third.exceeded is None
    assert third.standing.tokens is not None
    assert third.standing.tokens.amount == 500
    exceeded = answer(plane, two, "r4").exceeded
    assert exceeded is not None
    assert exceeded.limit.name == "requests_in_flight"
    page = plane.metrics.render().decode()
    assert 'tidegate_tenant_requests_total{tenant="alice"} 3.0' in page
    assert 'tidegate_tenant_refusals_total{limit="requests_in_flight",tenant="alice"} 1.0' in page


def test_what_goes_nowhere_comes_back_from_whichever_worker(plane: Plane) -> None:
    one, two = plane.seats
    answer(plane, one, "r1", "bob")
    assert answer(plane, two, "r2", "bob").exceeded is not None
    plane.team.received(one, messages.Withdrawn("r1"))
    assert answer(plane, two, "r3", "bob").exceeded is None
    plane.team.received(two, messages.Withdrawn("r2"))
    plane.team.received(one, messages.Withdrawn("r1"))
    assert left(plane, "bob") == {"requests_in_flight": 0}


def test_a_dead_worker_gives_back_what_it_held_and_nothing_that_was_delivered(plane: Plane) -> None:
    one, two = plane.seats
    for number in ("waiting", "reserved", "delivered"):
        answer(plane, one, number)
    for number in ("reserved", "delivered"):
        plane.team.received(one, reserved(number))
    plane.team.received(one, messages.Delivered("delivered"))
    answer(plane, two, "another's", "bob")
    assert left(plane) == {"requests_in_flight": 0, "tokens_per_minute": 700}
    plane.die(one)
    _withdraw_what_was_released(plane, "reserved")
    assert left(plane) == {"requests_in_flight": 2, "tokens_per_minute": 900}
    assert left(plane, "bob") == {"requests_in_flight": 0}
    plane.start(one)
    plane.die(one)
    assert left(plane) == {"requests_in_flight": 2, "tokens_per_minute": 900}


def _withdraw_what_was_released(plane: Plane, number: str) -> None:
    """Do what the control plane does when the fleet releases a reservation."""
    assert number not in plane.fleet.ledger
    plane.tenants.withdraw(number)


def test_the_log_settles_what_a_worker_took_once(plane: Plane) -> None:
    one, _ = plane.seats
    answer(plane, one, "r1")
    plane.team.received(one, reserved("r1"))
    plane.tenants.ended(parse(entry(decision={**DECISION, "reservation": "r1"}, tokens=usage(40, 10))))
    plane.apply(RequestEnded("r1"))
    plane.team.received(one, messages.Delivered("r1"))
    plane.die(one)
    assert left(plane) == {"requests_in_flight": 3, "tokens_per_minute": 950}


def test_unknown_callers_are_counted_by_the_main_process(plane: Plane) -> None:
    plane.team.received(plane.seats[0], messages.Counted((("unauthenticated", ("wrong",), 3),)))
    assert 'tidegate_unauthenticated_total{why="wrong"} 3.0' in plane.metrics.render().decode()


@given(
    st.lists(st.tuples(st.sampled_from(["ask", "withdraw", "reserve", "die"]), st.integers(0, 1), st.integers(0, 9)))
)
@settings(max_examples=60, deadline=None)
def test_whatever_workers_do_no_limit_is_exceeded_and_nothing_is_lost(steps: list[tuple[str, int, int]]) -> None:
    plane = Plane(0)
    plane.team._config = b""
    plane.team.configure(parsed(CONFIG))
    plane.seats.extend(plane._seat(number) for number in range(2))
    held: dict[str, int] = {}
    asks = 0
    for what, worker, number in steps:
        seat = plane.seats[worker]
        name = sorted(held)[number % len(held)] if held else ""
        if what == "ask":
            asks += 1
            passed = answer(plane, seat, f"r{asks}", tokens=0).exceeded is None
            assert passed == (len(held) < 3)
            if passed:
                held[f"r{asks}"] = worker
        elif what == "die":
            plane.die(seat)
            plane.start(seat)
            held = {one: owner for one, owner in held.items() if owner != worker}
        elif what == "withdraw" and name:
            plane.team.received(plane.seats[held.pop(name)], messages.Withdrawn(name))
        assert left(plane)["requests_in_flight"] == 3 - len(held)


class Slow:
    """A till that waits for somebody else, and remembers what is held."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.held: list[str] = []
        self.unknown = False

    async def take(self, ask: Ask) -> Answer:
        self.held.append(ask.id)
        await self.go.wait()
        if self.unknown:
            self.held.remove(ask.id)
            raise remote_till.unanswered()
        return Answer(None, NOTHING)

    def withdraw(self, request_id: str) -> None:
        if request_id in self.held:
            self.held.remove(request_id)

    def unauthenticated(self, why: str) -> None: ...


class Told:
    def __init__(self) -> None:
        self.messages: list[messages.Message] = []

    def send(self, message: messages.Message) -> None:
        self.messages.append(message)


async def test_an_ask_that_is_withdrawn_while_it_is_looked_up_holds_nothing() -> None:
    till, told = Slow(), Told()
    counter = Counter(till)
    counter.received(told, asked("r1"))
    counter.received(told, asked("r2"))
    counter.received(told, messages.Withdrawn("r1"))
    await asyncio.sleep(0)
    till.go.set()
    await asyncio.sleep(0.01)
    assert told.messages == [messages.Answered("r2", Answer(None, NOTHING))]
    assert till.held == ["r2"]
    counter.left(told)
    assert till.held == []
    assert counter._waiting == {}


async def test_what_cannot_be_found_out_is_said_and_holds_nothing() -> None:
    till, told = Slow(), Told()
    till.unknown = True
    counter = Counter(till)
    counter.received(told, asked("r1"))
    till.go.set()
    await asyncio.sleep(0.01)
    assert told.messages == [messages.Answered("r1", None)]
    counter.left(told)
    assert till.held == []


# -- the worker's side


class Wire:
    """A worker's gate, and what it says to the main process."""

    def __init__(self) -> None:
        self.sent: list[messages.FromWorker] = []
        self.whys: list[str] = []
        self.till = RemoteTill(self.sent.append, self.whys.append)
        self.gate = Gatekeeper(self.till, lambda _: 50)
        self.gate.configure(parsed(CONFIG))

    def admit(self, number: str = "r1") -> "asyncio.Task[Any]":
        request = InferenceRequest(number, "chat_completions", "m", TokenCount(10, CountSource.EXACT), 20)
        return asyncio.ensure_future(self.gate.admit(request, self.gate.identify({"x-api-key": "sk-alice"})))


async def test_a_worker_knows_who_asks_and_asks_for_what_it_costs() -> None:
    wire = Wire()
    admission = wire.admit()
    await asyncio.sleep(0)
    assert wire.sent == [messages.Asked(Ask("r1", "alice", ("tenant:alice", "key:a"), Cost(10, 20)))]
    wire.till.answered("r1", Answer(None, NOTHING))
    assert await admission == {"tenant": "alice"}
    with pytest.raises(ApiError):
        wire.gate.identify({"x-api-key": "sk-wrong"})
    assert wire.whys == ["wrong"]


async def test_a_main_process_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_till, "ANSWER_SECONDS", 0.05)
    wire = Wire()
    with pytest.raises(ApiError) as caught:
        await wire.admit()
    assert (caught.value.status, caught.value.headers["retry-after"]) == (503, "1")
    assert wire.sent[1:] == [messages.Withdrawn("r1")]
    wire.till.answered("r1", Answer(None, NOTHING))  # too late, and nobody minds


async def test_an_answer_that_nobody_waits_for_any_more_is_no_error() -> None:
    wire = Wire()
    admission = wire.admit()
    await asyncio.sleep(0)
    admission.cancel()
    with pytest.raises(asyncio.CancelledError):
        await admission
    wire.gate.withdraw("r1")
    assert wire.sent[1:] == [messages.Withdrawn("r1")]
    wire.till.answered("r1", Answer(None, NOTHING))
    assert wire.till._asked == {}


async def test_a_limit_in_the_way_is_told_as_ever() -> None:
    plane = Plane(0)
    plane.team._config = b""
    plane.team.configure(parsed({**CONFIG, "tenants": [{"name": "alice", "limits": {"tokens_per_minute": 20}}]}))
    seat, wire = plane._seat(0), Wire()
    admission = wire.admit()
    await asyncio.sleep(0)
    plane.team.received(seat, wire.sent[0])
    told = seat.sent[-1]
    assert isinstance(told, messages.Answered)
    wire.till.answered(told.id, told.answer)
    with pytest.raises(ApiError, match="at any time") as caught:
        await admission
    assert (caught.value.status, caught.value.headers["x-should-retry"]) == (429, "false")
    assert caught.value.headers["x-ratelimit-remaining-tokens"] == "20"


def test_a_caller_without_limits_is_asked_about_too(plane: Plane) -> None:
    ask = Ask.of(InferenceRequest("r1", "chat_completions", "m", TokenCount(1, CountSource.EXACT)), Caller("nobody"), 1)
    plane.team.received(plane.seats[0], messages.Asked(ask))
    assert plane.seats[0].sent[-1] == messages.Answered("r1", Answer(None, NOTHING))
