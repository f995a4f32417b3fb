"""Which endpoints have room, by what is declared, reported, remembered and learned."""

import pytest
from hypothesis import given

from tests.scheduling.ask import A, B, C, ask, candidate, candidates
from tidegate.fleet.health import Reachability
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.filters import fits
from tidegate.scheduling.room import RAMP_REQUESTS, Claim, Room


def kept(room: Room, *endpoints: EndpointView, prompt: int = 100) -> list[str]:
    return [endpoint.address for endpoint in room.keep(ask(prompt=prompt), endpoints)]


def report(address: str, running: float, waiting: float, age: float = 0.1) -> EndpointView:
    return candidate(address, requests=running + waiting, running=running, waiting=waiting)._replace(report_age=age)


@given(candidates())
def test_what_has_room_fits_but_for_an_empty_engine_and_one_of_which_nothing_is_known(
    found: list[EndpointView],
) -> None:
    request = ask(prompt=1000)
    fitting = fits.keep(request, found)
    for endpoint in Room().keep(request, found):
        assert endpoint in fitting or endpoint.requests == 0


def test_the_batch_is_the_endpoints_own_then_the_pools() -> None:
    room = Room(max_running=4)
    assert kept(room, candidate(A, requests=4), candidate(B, requests=3), candidate(C, requests=5, max_running=6)) == [
        B,
        C,
    ]
    room.claim = Claim(0.5)
    assert kept(room, candidate(B, requests=3), candidate(C, requests=2, max_running=6)) == [C]


def test_the_cache_counts_what_was_sent_and_what_is_reported_and_a_share_of_it_is_smaller() -> None:
    room = Room()
    sent = candidate(A, requests=1, tokens=950, kv_capacity=1000)
    reported = candidate(B, requests=1, tokens=10, kv_usage=0.95, kv_capacity=1000)
    free = candidate(C, requests=1, tokens=850, kv_capacity=1000)
    assert kept(room, sent, reported, free) == [C]
    room.claim = Claim(0.9)
    assert kept(room, sent, reported, free) == []


def test_vram_that_is_full_is_no_room_for_a_large_request() -> None:
    tight = candidate(A, requests=1)._replace(vram_room_tokens=50.0)
    assert kept(Room(), tight) == []
    assert kept(Room(), tight, prompt=40) == [A]
    assert kept(Room(), tight._replace(requests=0.0)) == [A], "nobody else will do"
    assert kept(Room(), tight._replace(requests=0.0), candidate(B, requests=1)) == [B]


def test_what_fits_nowhere_goes_to_the_largest_that_is_empty_and_waits_for_one_that_is_larger() -> None:
    small, large = candidate(A, kv_capacity=1000), candidate(B, kv_capacity=5000)
    assert kept(Room(), small, large, prompt=9000) == [B]
    busy = candidate(B, requests=1, tokens=4000, kv_capacity=5000)
    assert kept(Room(), small, busy, prompt=3000) == []
    assert kept(Room(), small, candidate(B, requests=1, kv_capacity=5000), prompt=3000) == [B]


def test_a_cache_that_was_reported_once_is_remembered_as_long_as_its_endpoint_is_there() -> None:
    room = Room()
    silent = candidate(A, requests=3, tokens=990)
    assert kept(room, silent) == [A]
    room.learn([candidate(A, kv_capacity=1000)], 1.0)
    assert kept(room, silent) == []
    room.learn([candidate(B)], 2.0)
    assert kept(room, silent) == [A]


def test_a_batch_is_learned_from_two_looks_and_grows_when_the_engine_does() -> None:
    room = Room()
    room.learn([report(A, 10, 20)], 10.0)
    assert kept(room, candidate(A, requests=30)) == [A], "once may be a burst"
    room.learn([report(A, 10, 20)], 10.01)
    assert kept(room, candidate(A, requests=30)) == [A], "that was the same report"
    room.learn([report(A, 10, 15)], 11.0)
    assert kept(room, candidate(A, requests=14)) == []
    assert kept(room, candidate(A, requests=13)) == [A]
    assert room.batch(candidate(A)) == 14
    assert room.batch(candidate(A, max_running=3)) == 3
    room.learn([report(A, 14, 0)], 12.0)
    assert kept(room, candidate(A, requests=17)) == [A]
    room.learn([report(A, 3, 0)], 80.0)
    assert room.batch(candidate(A)) is None, "it is not known to be full for a minute"


def test_unknown_endpoints_that_are_all_down_are_asked_as_without_a_queue_and_known_ones_are_not() -> None:
    down = candidate(A, reachability=Reachability.UNREACHABLE)
    assert kept(Room(), down) == [A]
    assert kept(Room(max_running=3), down) == []


def test_one_that_was_away_is_given_little_at_first_and_twice_as_much_each_second() -> None:
    room, up = Room(max_running=100), candidate(A, requests=1)
    down = up._replace(reachability=Reachability.UNREACHABLE)
    room.learn([up], 0.0)
    room.learn([down], 1.0)
    room.learn([up], 2.0)
    full = candidate(A, requests=RAMP_REQUESTS)
    assert kept(room, full) == []
    room.learn([up], 3.0)
    assert kept(room, full) == [A]
    assert kept(room, candidate(A, requests=2 * RAMP_REQUESTS)) == []
    room.learn([up], 12.5)
    assert kept(room, candidate(A, requests=99)) == [A]


@pytest.mark.parametrize("wanted", [True, False])
def test_one_that_joins_while_requests_wait_is_begun_with_slowly(wanted: bool) -> None:
    room = Room(max_running=100)
    room.learn([candidate(A)], 0.0)
    room.wanted = wanted
    room.learn([candidate(A), candidate(B)], 1.0)
    assert kept(room, candidate(A, requests=50), candidate(B, requests=50)) == ([A] if wanted else [A, B])
