"""What other replicas have in flight counts at once, never twice, and no longer than it is believed."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.declare import A, B, fleet_of, pool, reservation, seen
from tests.scheduling.ask import ask
from tidegate.fleet.events import LoadReported, OthersReported, RequestEnded, RequestReserved, ScrapeStarted
from tidegate.fleet.load import EngineReport
from tidegate.fleet.others import Others
from tidegate.fleet.state import Fleet
from tidegate.scheduling.room import Room
from tidegate.scheduling.saturation import saturation

COUNT = st.integers(0, 50)
SECONDS = 2.0


def others(requests: int, tokens: int = 1_500, backlog: int = 0) -> Others:
    """Return what others have, of requests with two thirds of their tokens in their prompts."""
    return Others(requests, requests * tokens * 2 // 3, requests * tokens, backlog)


def told(fleet: Fleet, now: float, **more: Any) -> None:
    fleet.apply(OthersReported(((A, others(**more)),), SECONDS), now)


def reported(fleet: Fleet, now: float, running: float | None = None, waiting: float | None = None) -> None:
    fleet.apply(ScrapeStarted(A), now)
    fleet.apply(LoadReported(A, EngineReport(running, waiting)), now)


@given(own=COUNT, foreign=COUNT, theirs=COUNT, replicas_first=st.booleans())
def test_the_larger_of_what_reports_show_and_what_replicas_say_is_there_besides_our_own(
    own: int, foreign: int, theirs: int, replicas_first: bool
) -> None:
    fleet, deaf = fleet_of(pool(A)), fleet_of(pool(A))
    if replicas_first:
        told(fleet, 0.0, requests=theirs)
    for one in (fleet, deaf):
        for number in range(own):
            one.apply(RequestReserved(reservation(str(number))), 0.1)
        reported(one, 0.2, running=own + foreign)
    told(fleet, 0.3, requests=theirs)
    here, without = seen(fleet, A, 0.4), seen(deaf, A, 0.4)
    assert without.requests == own + foreign
    assert here.requests == own + max(foreign, theirs)
    assert (here.inflight_requests, here.inflight_tokens) == (own, without.inflight_tokens)
    assert here.tokens == max(without.tokens, here.inflight_tokens + theirs * 1_500)
    assert here.context == max(without.context, own * 125 + theirs * 1_250)


@given(tokens=st.integers(1, 10_000))
def test_their_tokens_are_those_that_they_say(tokens: int) -> None:
    fleet = fleet_of(pool(A))
    told(fleet, 0.0, requests=3, tokens=tokens)
    here = seen(fleet, A, 0.1)
    assert here.tokens == 3 * tokens
    assert here.context == (3 * tokens + 3 * tokens * 2 // 3) / 2


@given(running=st.none() | COUNT.map(float), pause=st.floats(0.0, 10.0))
def test_what_is_no_longer_believed_leaves_all_as_it_was(running: float | None, pause: float) -> None:
    with_word, without = fleet_of(pool(A, B)), fleet_of(pool(A, B))
    told(with_word, 0.0, requests=60, backlog=100)
    for fleet in (with_word, without):
        reported(fleet, 0.5, running=running)
        fleet.apply(RequestReserved(reservation("r1", prompt=0, output=0)), 1.0)
    now = 1.0 + pause
    same = seen(with_word, A, now).requests == seen(without, A, now).requests
    assert same == (now > SECONDS)
    if now > SECONDS:
        assert with_word.view("default", now) == without.view("default", now)


def test_an_endpoint_is_not_shown_for_longer_than_what_was_said_is_believed() -> None:
    fleet = fleet_of(pool(A))
    told(fleet, 0.0, requests=5)
    assert seen(fleet, A, SECONDS).requests == 5
    assert seen(fleet, A, SECONDS + 0.001).requests == 0


def test_the_next_word_is_the_whole_one() -> None:
    fleet = fleet_of(pool(A, B))
    told(fleet, 0.0, requests=5)
    fleet.apply(OthersReported(((B, others(2)), ("10.9.9.9:1", others(9))), SECONDS), 0.1)
    assert [endpoint.requests for endpoint in fleet.view("default", 0.2).endpoints] == [0, 2]


def test_an_endpoint_that_is_silent_bears_what_its_like_do_or_what_is_said_if_that_is_more() -> None:
    fleet = fleet_of(pool(A, B))
    fleet.apply(LoadReported(B, EngineReport(6.0)), 0.0)
    told(fleet, 0.0, requests=4)
    assert seen(fleet, A, 0.1).requests == 6
    told(fleet, 0.2, requests=9)
    assert seen(fleet, A, 0.3).requests == 9


def test_their_prompts_are_before_ours_until_they_are_prefilled() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("r1", prompt=50_000)), 0.0)
    own = seen(fleet, A, 0.0).backlog
    told(fleet, 0.0, requests=1, backlog=30_000)
    assert seen(fleet, A, 0.0).backlog == own + 30_000
    later = seen(fleet, A, 0.5).backlog
    assert own < later < own + 30_000


def test_prompts_that_wait_in_the_engine_and_are_theirs_are_not_taken_for_ours() -> None:
    fleet, alone = fleet_of(pool(A)), fleet_of(pool(A))
    for one in (fleet, alone):
        one.apply(RequestReserved(reservation("r1", prompt=1_000)), 0.0)
    told(fleet, 0.0, requests=10, backlog=10_000)
    for one in (fleet, alone):
        reported(one, 0.0, running=1.0, waiting=10.0)
    # Ten prompts wait, and ten were told: those.
    assert seen(fleet, A, 0.0).backlog == 1_000 + 10_000
    assert seen(alone, A, 0.0).backlog == 10_000


def test_others_are_told_of_no_backlog_that_is_not_ours() -> None:
    fleet = fleet_of(pool(A, B))
    assert list(fleet.in_flight(0.0)) == []
    fleet.apply(RequestReserved(reservation("r1", prompt=1_000, output=500)), 0.0)
    reported(fleet, 0.0, running=1.0, waiting=30.0)
    assert seen(fleet, A, 0.0).backlog > 1_000
    assert list(fleet.in_flight(0.0)) == [(A, Others(1, 1_000, 1_500, 1_000))]
    fleet.apply(RequestEnded("r1"), 1.0)
    assert list(fleet.in_flight(1.0)) == []


def test_room_and_saturation_count_them() -> None:
    fleet, room = fleet_of(pool(A, B)), Room(max_running=8)
    before = saturation(fleet.view("default", 0.0), (100.0, 50.0))
    told(fleet, 0.0, requests=8)
    view = fleet.view("default", 0.1)
    after = saturation(view, (100.0, 50.0))
    assert (before.batch or 0.0) == 0.0
    assert (after.batch or 0.0) > 0.0
    assert [endpoint.address for endpoint in room.keep(ask(), view.endpoints)] == [B]
