"""What the processes say to each other comes out as it went in."""

import math
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given

from tests.configurations import EVERY_KEY, parsed
from tests.fleet.declare import A, B, fleet_of, pool, reservation, seen
from tests.fleet.test_any_events import EVENTS
from tidegate.config import Config
from tidegate.config_values import CHECKED
from tidegate.fleet.events import (
    FleetEvent,
    GpuMemoryReported,
    LoadReported,
    OthersReported,
    RequestProgressed,
    RequestReserved,
    ScrapeFailed,
)
from tidegate.fleet.load import EngineReport
from tidegate.fleet.others import Others
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import EndpointView
from tidegate.fleet.vram import GpuMemory
from tidegate.runtime.workers import messages
from tidegate.runtime.workers.framing import Deframer
from tidegate.scheduling.allowance import Answer, Ask, Standing
from tidegate.scheduling.budget import Cost, Exceeded, Left, Limit, Unit, Window
from tidegate.tokens.correction import Corrections

TPM = Limit(Unit.TOKENS, Window.MINUTE, 100, 50)


def sent(message: messages.Message) -> bytes:
    """Return the one message that arrives."""
    (data,) = Deframer().feed(messages.encode(message))
    return data


@given(EVENTS)
def test_every_fact_arrives_as_it_is_but_for_leases(event: FleetEvent) -> None:
    message = messages.fact(event, 12.5)
    if isinstance(event, RequestProgressed):
        assert message is None
        return
    assert message is not None
    arrived = messages.to_worker.decode(sent(message))
    assert type(arrived) is type(message)
    # As text, in which one NaN is like another.
    assert repr(arrived) == repr(message)


@pytest.mark.parametrize(
    "message",
    [
        messages.Prepared(3),
        messages.Deciding(3),
        messages.Ready(),
        messages.Leaving(),
        messages.Reserved(RequestReserved(reservation("r1"), (1, 2**63), 16)),
        messages.Delivered("r1"),
        messages.Abandoned("r1"),
        messages.Asked(Ask("r1", "alice", ("tenant:alice", "key:a"), Cost(100, 20))),
        messages.Withdrawn("r1"),
        messages.Counted((("decided", (0.25,), 1), ("received", ("pool",), 3), ("ext_proc_opened", (), 2))),
    ],
)
def test_everything_that_a_worker_says_arrives_as_it_is(message: messages.FromWorker) -> None:
    assert messages.from_worker.decode(sent(message)) == message


@pytest.mark.parametrize(
    "answer",
    [
        None,
        Answer(None, Standing(None, Left(TPM, 40, 6.5))),
        Answer(Exceeded("tenant:alice", TPM, 70, math.inf), Standing(Left(TPM, 0, 0.0), None)),
    ],
)
def test_what_a_worker_is_answered_arrives_as_it_is(answer: Answer | None) -> None:
    message = messages.Answered("r1", answer)
    assert messages.to_worker.decode(sent(message)) == message


def test_what_is_no_message_is_an_error() -> None:
    for data in (b"", b"\xc1", msgspec.msgpack.encode(["Nothing", 1]), msgspec.msgpack.encode(["Prepared", "x"])):
        with pytest.raises(msgspec.DecodeError):
            messages.from_worker.decode(data)


def without_reckonings(view: EndpointView) -> EndpointView:
    """Leave out what an engine works on, which is reckoned anew from the reservations."""
    return view._replace(context=0.0, backlog=0.0, busy=0.0)


def test_a_welcome_makes_an_equal_fleet() -> None:
    fleet = fleet_of(replace(pool(A, B), vram="growth"))
    fleet.apply(LoadReported(A, EngineReport(3.0, 1.0, 0.5, None, None, math.inf)), 1.0)
    for free in (8 << 30, 1 << 28):
        fleet.apply(GpuMemoryReported(A, GpuMemory(80 << 30, free, 9.0)), 1.5)
    for _ in range(3):
        fleet.apply(ScrapeFailed(B, unreachable=True, reason="refused"), 2.0)
    for number in range(5):
        fleet.apply(RequestReserved(reservation(f"r{number}", address=A)), 2.5)
    fleet.apply(OthersReported(((A, Others(9, 900, 1800, 300)),), 2.0), 2.5)
    corrections = Corrections()
    corrections.learn("default", "m", 1000, 1500)
    welcome = messages.Welcome(7000, b"{}", 1_700_000_000, fleet.image(), corrections.image())

    arrived = messages.to_worker.decode(sent(welcome))
    assert arrived == welcome
    assert isinstance(arrived, messages.Welcome)
    replica = Fleet(45.0)
    replica.restore(arrived.fleet, 3.0)
    (theirs,), (ours,) = replica.views(3.0), fleet.views(3.0)
    assert [without_reckonings(one) for one in theirs.endpoints] == [without_reckonings(one) for one in ours.endpoints]
    assert replica.pools == fleet.pools
    assert list(replica.ledger) == list(fleet.ledger)
    assert seen(replica, B, 3.0).ejected
    assert seen(replica, A, 3.0).requests == 5 + 9
    assert seen(replica, A, 3.0).vram_room_tokens == 2048
    assert replica.expected_output("default", None) == fleet.expected_output("default", None)
    with pytest.raises(ValueError, match="empty"):
        replica.restore(arrived.fleet, 3.0)

    taught = Corrections()
    taught.learn("other", "m", 1000, 1500)
    taught.restore(arrived.corrections)
    assert list(taught) == list(corrections)
    for both in (taught, corrections):
        both.learn("default", "m", 1000, 1700)
    assert list(taught) == list(corrections)


def test_a_configuration_arrives_as_it_is() -> None:
    config = parsed(EVERY_KEY)
    assert Config.model_validate_json(config.model_dump_json(), context=CHECKED) == config


def test_a_tokenizer_that_is_gone_meanwhile_does_not_matter() -> None:
    config = parsed({"pools": [{"name": "one", "endpoints": [{"address": "10.0.0.1:1"}]}]})
    gone = config.pools[0].model_copy(update={"tokenizer": "/no/such/tokenizer.json"})
    text = config.model_copy(update={"pools": (gone,)}).model_dump_json()
    assert Config.model_validate_json(text, context=CHECKED).pools == (gone,)
