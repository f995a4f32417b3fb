"""The tables of the endpoint picker's streams."""

import re

import pytest

from extproc import picker_stream
from extproc.picker_messages import Modes, Piece, RequestHeaders, ResponseHeaders
from extproc.picker_stream import (
    OWN_EVENTS,
    REQUEST_TABLE,
    RESPONSE_TABLE,
    Action,
    Event,
    Phase,
    PickerStream,
    ResponsePhase,
)
from extproc.stream import LocalProtocolError, PeerProtocolError

SENDS_A_DECISION = {Action.ROUTE_HEADERS, Action.ROUTE_BODY}
DELIVERED = {Phase.OPEN, Phase.SENT}


def test_the_table_is_what_its_description_says() -> None:
    described = set()
    for line in (picker_stream.__doc__ or "").splitlines():
        found = re.fullmatch(r"    ([A-Z_*, ]+?)  +([A-Z_, ]+?) +-> ([A-Z_]+|as it was) +(.*)", line)
        if found is None or "RESPON" in found[1] or found[1].startswith("WAIT_RESPONSE"):
            continue
        for name in found[1].split(", "):
            phases = [phase for phase in Phase if re.fullmatch(name.replace("*", ".*"), phase.name)]
            assert phases, name
            for phase in phases:
                after = phase if found[3] == "as it was" else Phase[found[3]]
                actions = tuple(Action[word] for word in re.findall("[A-Z_]+", found[4].split(", and")[0]))
                described |= {(phase, Event[event], after, actions) for event in found[2].split(", ")}
    assert described == {(*at, *then) for at, then in REQUEST_TABLE.items()}


def test_only_a_decision_leads_to_where_the_stream_may_be_ended() -> None:
    """Whatever the gateway sends, it is told nothing that lets the request go on before an endpoint is chosen."""
    undecided = {Phase.WAIT_HEADERS}
    while True:
        reached = {
            after
            for (phase, event), (after, _) in REQUEST_TABLE.items()
            if phase in undecided and event is not Event.DECIDED
        }
        if reached <= undecided:
            break
        undecided |= reached
    assert not undecided & DELIVERED
    for (phase, _), (_, actions) in REQUEST_TABLE.items():
        if phase in undecided:
            assert not {Action.ECHO, Action.ECHO_TRAILED, Action.PASS_PIECE, Action.PASS_TRAILERS} & set(actions) or (
                SENDS_A_DECISION & set(actions)
            )


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_can_be_reached_and_left(phase: Phase) -> None:
    assert phase is Phase.WAIT_HEADERS or any(after is phase for after, _ in REQUEST_TABLE.values())
    assert (phase is Phase.DONE) is not any(at is phase for at, _ in REQUEST_TABLE)


@pytest.mark.parametrize("event", Event)
def test_what_may_not_come_changes_nothing_and_says_whose_fault_it_is(event: Event) -> None:
    for phase in Phase:
        if (phase, event) in REQUEST_TABLE:
            continue
        stream = PickerStream(phase=phase)
        with pytest.raises(LocalProtocolError if event in OWN_EVENTS else PeerProtocolError, match=event.name):
            stream.step(event)
        assert stream.phase is phase


def test_a_response_that_is_over_is_over() -> None:
    assert not any(phase is ResponsePhase.RESPONDED for phase, _ in RESPONSE_TABLE)
    stream = PickerStream(phase=Phase.SENT)
    stream.receive(ResponseHeaders({}, end_of_stream=True))
    with pytest.raises(PeerProtocolError, match="RESPONDED"):
        stream.receive(ResponseHeaders({}))


def test_the_modes_are_those_of_the_first_message_that_says_them() -> None:
    stream = PickerStream()
    stream.receive(RequestHeaders({}, end_of_stream=True))
    assert stream.modes == Modes()
    with pytest.raises(PeerProtocolError):
        stream.receive(Piece(b"", end_of_stream=True))
