import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc import stream as subject
from extproc.stream import (
    PEER_EVENTS,
    TABLE,
    Action,
    Event,
    LocalProtocolError,
    Message,
    OtherMessage,
    PeerProtocolError,
    Phase,
    RequestBody,
    RequestHeaders,
    Stream,
    WholeRequest,
)

PAIRS = list(itertools.product(Phase, Event))
LEAVES = {Action.ROUTE_HEADERS, Action.ROUTE_BODY, Action.REFUSE, Action.GIVE_UP}


def listing() -> list[str]:
    """The table as text, in its own order."""
    return [
        f"{phase.name:<17} {event.name:<14} -> {following.name:<17} {', '.join(a.name for a in actions) or '-'}"
        for (phase, event), (following, actions) in TABLE.items()
    ]


def test_the_listing_in_the_docstring_is_the_table() -> None:
    documented = [line.strip() for line in (subject.__doc__ or "").splitlines() if " -> " in line]

    assert documented == listing()


@pytest.mark.parametrize(("phase", "event"), PAIRS, ids=[f"{p.name}-{e.name}" for p, e in PAIRS])
def test_every_pair_is_in_the_table_or_an_error_that_changes_nothing(phase: Phase, event: Event) -> None:
    stream = Stream()
    stream.phase = phase

    if (phase, event) in TABLE:
        assert stream.step(event) == TABLE[phase, event][1]
        assert stream.phase is TABLE[phase, event][0]
        return
    with pytest.raises(PeerProtocolError if event in PEER_EVENTS else LocalProtocolError):
        stream.step(event)
    assert stream.phase is phase


def test_nothing_happens_after_the_end() -> None:
    assert not [event for phase, event in TABLE if phase is Phase.DONE]


def test_the_end_is_reached_by_a_delivery_or_by_giving_up_alone() -> None:
    ends = {(event, actions) for (_, event), (following, actions) in TABLE.items() if following is Phase.DONE}

    assert ends == {(Event.DELIVERED, ()), (Event.ENDED, (Action.GIVE_UP,))}


def test_only_the_last_action_of_a_step_brings_about_an_event() -> None:
    for _, actions in TABLE.values():
        assert all(action is Action.CONTINUE for action in actions[:-1])
        assert not actions or actions[-1] is not Action.CONTINUE


def test_every_phase_can_be_reached_and_left() -> None:
    reached = {following for following, _ in TABLE.values()} | {Phase.WAIT_REQUEST}
    left = {phase for phase, _ in TABLE}

    assert reached == set(Phase)
    assert left == set(Phase) - {Phase.DONE}


def test_a_request_with_a_body_is_decided_on_its_body() -> None:
    stream = Stream()

    assert stream.receive(RequestHeaders({":path": "/"})) == (Action.MATCH,)
    assert stream.step(Event.MATCHED) == (Action.CONTINUE, Action.RECEIVE)
    assert stream.receive(RequestBody(b"{}")) == (Action.DECIDE,)
    assert stream.step(Event.DECIDED) == (Action.ROUTE_BODY,)
    assert stream.step(Event.DELIVERED) == ()
    assert (stream.phase, stream.headers, stream.body) == (Phase.DONE, {":path": "/"}, b"{}")


def test_a_request_without_a_body_is_decided_on_its_headers() -> None:
    stream = Stream()

    assert stream.receive(RequestHeaders({}, end_of_stream=True)) == (Action.MATCH,)
    assert stream.step(Event.MATCHED) == (Action.DECIDE,)
    assert stream.step(Event.DECIDED) == (Action.ROUTE_HEADERS,)
    assert stream.body == b""


def test_a_request_that_comes_whole_is_decided_on_in_one_exchange() -> None:
    stream = Stream()

    assert stream.receive(WholeRequest({":path": "/"}, b"{}")) == (Action.MATCH,)
    assert stream.step(Event.MATCHED) == (Action.DECIDE,)
    assert stream.step(Event.DECIDED) == (Action.ROUTE_BODY,)
    assert (stream.headers, stream.body) == ({":path": "/"}, b"{}")


def test_an_unknown_path_is_refused_before_the_body_is_asked_for() -> None:
    stream = Stream()
    stream.receive(RequestHeaders({}))

    assert stream.step(Event.REFUSED) == (Action.REFUSE,)


def test_an_unexpected_message_is_named_in_the_error_and_leaves_no_trace() -> None:
    stream = Stream()

    with pytest.raises(PeerProtocolError, match="response_headers in phase WAIT_REQUEST"):
        stream.receive(OtherMessage("response_headers"))
    with pytest.raises(PeerProtocolError, match="BODY in phase WAIT_REQUEST"):
        stream.receive(RequestBody(b"secret"))
    assert (stream.phase, stream.body) == (Phase.WAIT_REQUEST, b"")


messages: st.SearchStrategy[Message | None] = st.one_of(
    st.builds(RequestHeaders, st.just({}), st.booleans()),
    st.builds(RequestBody, st.binary(max_size=4)),
    st.builds(WholeRequest, st.just({}), st.binary(max_size=4)),
    st.builds(OtherMessage, st.just("other")),
    st.none(),
)


@given(st.lists(st.one_of(messages, st.sampled_from(sorted(set(Event) - PEER_EVENTS, key=lambda e: e.name)))))
def test_whatever_happens_a_stream_is_answered_at_most_once(happenings: list[Message | Event | None]) -> None:
    stream = Stream()
    answers = 0
    for happening in happenings:
        before = stream.phase
        try:
            actions = stream.step(happening) if isinstance(happening, Event) else stream.receive(happening)
        except (PeerProtocolError, LocalProtocolError):
            assert stream.phase is before
            continue
        answers += len(LEAVES.intersection(actions))
    assert answers <= 1
    assert (stream.phase in {Phase.DELIVERING, Phase.ANSWERING, Phase.DONE}) == (answers == 1)
