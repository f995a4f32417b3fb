"""The fleet: each event, and what follows from it."""

import math
from typing import Any, cast

import pytest

from tests.fleet.declare import A, B, C, fleet_of, pool, reservation, seen
from tidegate.fleet.events import (
    FleetEvent,
    HealthChanged,
    LoadReported,
    MembershipChanged,
    PoolsDeclared,
    ReachabilityChanged,
    RequestEnded,
    RequestProgressed,
    RequestReserved,
    ReservationReleased,
    ScrapeFailed,
    ScrapeStarted,
    TimePassed,
)
from tidegate.fleet.health import RULES, UNREACHABLE_AFTER, Health, HealthStatus, Reachability
from tidegate.fleet.known import STALE_AFTER
from tidegate.fleet.load import EngineReport
from tidegate.fleet.member import PRIOR_REQUEST_TOKENS
from tidegate.fleet.output_lengths import PRIOR_OUTPUT_TOKENS
from tidegate.fleet.state import Fleet

LEASE = 45.0


def fail(fleet: Fleet, address: str, times: int = UNREACHABLE_AFTER, now: float = 0.0) -> list[object]:
    return [
        change for _ in range(times) for change in fleet.apply(ScrapeFailed(address, True, "connection refused"), now)
    ]


def report(fleet: Fleet, address: str, now: float, **gauges: Any) -> None:
    fleet.apply(ScrapeStarted(address), now)
    fleet.apply(LoadReported(address, EngineReport(**gauges)), now)


# Membership


def test_declared_endpoints_are_added() -> None:
    fleet = Fleet(LEASE)
    assert fleet.apply(PoolsDeclared((pool(A, B),)), 0.0) == [MembershipChanged((A, B), ())]
    assert list(fleet.pools) == ["default"]


def test_declaring_the_same_again_changes_nothing() -> None:
    fleet = fleet_of(pool(A, B))
    assert fleet.apply(PoolsDeclared((pool(A, B),)), 1.0) == []


def test_what_is_no_longer_declared_is_gone() -> None:
    fleet = fleet_of(pool(A, B), pool(C, name="other"))
    assert fleet.apply(PoolsDeclared((pool(B),)), 1.0) == [MembershipChanged((), (A, C))]
    with pytest.raises(KeyError):
        fleet.view("other", 1.0)


def test_a_changed_weight_is_a_change_without_comings_or_goings() -> None:
    fleet = fleet_of(pool(A))
    assert fleet.apply(PoolsDeclared((pool(A, weights={A: 3}),)), 1.0) == [MembershipChanged((), ())]
    assert seen(fleet, A, 1.0).weight == 3


def test_another_order_of_pools_is_a_change() -> None:
    one, two = pool(A, name="one"), pool(B, name="two")
    fleet = fleet_of(one, two)
    assert fleet.apply(PoolsDeclared((two, one)), 1.0) == [MembershipChanged((), ())]
    assert list(fleet.pools) == ["two", "one"]


def test_an_endpoint_that_stays_keeps_what_is_known_of_it() -> None:
    fleet = fleet_of(pool(A, B))
    report(fleet, A, 0.0, running=4.0)
    fleet.apply(PoolsDeclared((pool(A, C, weights={A: 2}),)), 1.0)
    assert seen(fleet, A, 1.0).running == 4.0
    assert seen(fleet, A, 1.0).reachability is Reachability.REACHABLE


def test_an_endpoint_that_moves_to_another_pool_keeps_what_is_known_of_it() -> None:
    fleet = fleet_of(pool(A, name="one"), pool(B, name="two"))
    report(fleet, A, 0.0, running=4.0)
    fleet.apply(PoolsDeclared((pool(B, name="one"), pool(A, name="two"))), 1.0)
    assert fleet.view("two", 1.0).endpoints[0].running == 4.0


def test_a_pool_without_endpoints_is_an_empty_pool() -> None:
    assert fleet_of(pool()).view("default", 0.0).endpoints == ()


def test_an_endpoint_removed_with_requests_in_flight_is_forgotten_but_they_are_not() -> None:
    fleet = fleet_of(pool(A, B))
    fleet.apply(RequestReserved(reservation("r1", address=A)), 0.0)
    fleet.apply(PoolsDeclared((pool(B),)), 1.0)
    assert fleet.ledger.inflight(A).requests == 1
    assert fleet.apply(RequestEnded("r1"), 2.0) == [ReservationReleased(reservation("r1", address=A))]
    assert len(fleet.ledger) == 0


def test_an_endpoint_that_comes_back_still_bears_what_was_in_flight() -> None:
    fleet = fleet_of(pool(A, B))
    report(fleet, A, 0.0, running=4.0)
    fleet.apply(RequestReserved(reservation("r1", address=A)), 0.0)
    fleet.apply(PoolsDeclared((pool(B),)), 1.0)
    fleet.apply(PoolsDeclared((pool(A, B),)), 2.0)
    back = seen(fleet, A, 2.0)
    assert back.inflight_requests == 1
    assert (back.reachability, back.running, back.report_age) == (Reachability.UNKNOWN, None, None)


# Reachability


def test_a_report_makes_an_endpoint_reachable_once() -> None:
    fleet = fleet_of(pool(A))
    changes = fleet.apply(LoadReported(A, EngineReport()), 0.0)
    assert changes == [ReachabilityChanged(A, Reachability.REACHABLE, "it answered")]
    assert fleet.apply(LoadReported(A, EngineReport()), 1.0) == []


def test_failed_connections_in_a_row_make_an_endpoint_unreachable_and_envoy_forgets_it() -> None:
    fleet = fleet_of(pool(A, B))
    doubted, changed, ejected, *more = fail(fleet, A)
    assert doubted == ReachabilityChanged(A, Reachability.UNREACHED, "connection refused")
    assert changed == ReachabilityChanged(A, Reachability.UNREACHABLE, "connection refused")
    assert isinstance(ejected, HealthChanged)
    assert (ejected.pool, ejected.address, ejected.detail) == ("default", A, "connection refused")
    assert ejected.health == Health(HealthStatus.EJECTED, ("unreachable",))
    assert more == []
    assert seen(fleet, A, 0.0).ejected
    assert not seen(fleet, B, 0.0).ejected


def test_an_odd_answer_is_a_sign_of_life() -> None:
    fleet = fleet_of(pool(A, B))
    fail(fleet, A)
    changes = fleet.apply(ScrapeFailed(A, unreachable=False, reason="status 500"), 1.0)
    assert changes == [ReachabilityChanged(A, Reachability.REACHABLE, "status 500")]
    fleet.apply(TimePassed(), RULES.hold_seconds)
    assert not seen(fleet, A, RULES.hold_seconds).ejected


def test_an_endpoint_that_answers_again_is_given_back_to_envoy() -> None:
    fleet = fleet_of(pool(A, B))
    fail(fleet, A)
    assert seen(fleet, A, 0.0).ejected
    report(fleet, A, 1.0)
    fleet.apply(TimePassed(), RULES.hold_seconds)
    assert not seen(fleet, A, RULES.hold_seconds).ejected


def test_when_most_of_a_pool_looks_dead_nobody_is_ejected() -> None:
    fleet = fleet_of(pool(A, B, C))
    fail(fleet, A)
    assert seen(fleet, A, 0.0).ejected
    fail(fleet, B)
    assert [endpoint.ejected for endpoint in fleet.view("default", 0.0).endpoints] == [False, False, False]


def test_pools_are_judged_apart() -> None:
    fleet = fleet_of(pool(A, name="one"), pool(B, C, name="two"))
    fail(fleet, A)
    fail(fleet, B)
    assert not seen(fleet, A, 0.0).ejected
    assert seen(fleet, B, 0.0).ejected


def test_a_new_member_can_end_the_panic_of_a_pool() -> None:
    fleet = fleet_of(pool(A))
    fail(fleet, A)
    assert not seen(fleet, A, 0.0).ejected
    fleet.apply(PoolsDeclared((pool(A, B),)), 1.0)
    fleet.apply(TimePassed(), RULES.calm_seconds)
    assert seen(fleet, A, RULES.calm_seconds).ejected


# Load


def test_load_is_what_others_put_there_plus_what_we_have_in_flight() -> None:
    fleet = fleet_of(pool(A))
    report(fleet, A, 0.0, running=8.0, waiting=2.0)
    fleet.apply(RequestReserved(reservation(prompt=100, output=50)), 0.5)
    endpoint = seen(fleet, A, 1.0)
    assert (endpoint.inflight_requests, endpoint.inflight_tokens) == (1, 150)
    assert endpoint.requests == 11.0
    assert endpoint.tokens == pytest.approx(150 + 10 * 1000, rel=0.1)


def test_our_own_requests_in_a_report_are_not_counted_twice() -> None:
    fleet = fleet_of(pool(A))
    for number in range(3):
        fleet.apply(RequestReserved(reservation(str(number))), 0.0)
    report(fleet, A, 1.0, running=3.0)
    assert seen(fleet, A, 1.0).requests == 3.0


def test_a_request_that_ends_while_a_scrape_runs_is_not_taken_for_somebody_elses() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("r1")), 0.0)
    fleet.apply(ScrapeStarted(A), 1.0)
    fleet.apply(RequestEnded("r1"), 1.1)
    fleet.apply(LoadReported(A, EngineReport(running=1.0)), 1.2)
    assert seen(fleet, A, 1.2).requests == 0.0


def test_a_request_sent_while_a_scrape_runs_is_not_taken_for_somebody_elses() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(ScrapeStarted(A), 1.0)
    fleet.apply(RequestReserved(reservation("r1")), 1.1)
    fleet.apply(LoadReported(A, EngineReport(running=1.0)), 1.2)
    assert seen(fleet, A, 1.2).requests == 1.0


def test_a_report_goes_stale() -> None:
    fleet = fleet_of(pool(A))
    report(fleet, A, 10.0, running=8.0, kv_usage=0.5)
    assert seen(fleet, A, 10.0 + STALE_AFTER).running == 8.0
    late = seen(fleet, A, 10.0 + STALE_AFTER + 0.001)
    assert (late.running, late.waiting, late.kv_usage, late.requests) == (None, None, None, 0.0)
    assert late.report_age == pytest.approx(STALE_AFTER + 0.001)


def test_how_long_a_report_counts_follows_from_how_often_there_is_one() -> None:
    fleet = Fleet(LEASE, stale_after=60.0)
    fleet.apply(PoolsDeclared((pool(A),)), 0.0)
    report(fleet, A, 0.0, running=8.0)
    assert seen(fleet, A, 60.0).running == 8.0
    assert seen(fleet, A, 60.1).running is None


def test_a_silent_endpoint_is_assumed_to_bear_what_its_neighbours_report() -> None:
    fleet = fleet_of(pool(A, B, C, weights={C: 3}))
    report(fleet, A, 0.0, running=10.0)
    report(fleet, B, 0.0, running=20.0)
    silent = seen(fleet, C, 0.0)
    assert silent.requests == pytest.approx(45.0)
    assert silent.tokens == pytest.approx(45.0 * PRIOR_REQUEST_TOKENS)
    assert silent.running is None


def test_an_endpoint_that_answers_without_gauges_is_silent_too() -> None:
    fleet = fleet_of(pool(A, B))
    report(fleet, A, 0.0, running=10.0)
    report(fleet, B, 0.0, kv_usage=0.1)
    assert seen(fleet, B, 0.0).requests == pytest.approx(10.0)


def test_stale_neighbours_say_nothing_about_a_silent_endpoint() -> None:
    fleet = fleet_of(pool(A, B))
    report(fleet, A, 0.0, running=10.0)
    assert seen(fleet, B, STALE_AFTER + 1.0).requests == 0.0


def test_where_nobody_reports_only_our_own_requests_count() -> None:
    fleet = fleet_of(pool(A, B))
    fleet.apply(RequestReserved(reservation(address=B, prompt=100, output=50)), 0.0)
    assert [endpoint.tokens for endpoint in fleet.view("default", 0.0).endpoints] == [0.0, 150.0]


def test_nonsense_in_a_report_is_unknown() -> None:
    fleet = fleet_of(pool(A))
    report(fleet, A, 0.0, running=math.nan, waiting=math.inf, kv_usage=-1.0)
    endpoint = seen(fleet, A, 0.0)
    assert (endpoint.running, endpoint.waiting, endpoint.kv_usage, endpoint.requests) == (None, None, None, 0.0)


# Requests


def test_a_reservation_told_twice_counts_once() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("r1")), 0.0)
    assert fleet.apply(RequestReserved(reservation("r1")), 1.0) == []
    assert fleet.ledger.inflight(A).requests == 1


def test_a_request_that_ends_is_released_once() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("r1")), 0.0)
    assert fleet.apply(RequestEnded("r1"), 1.0) == [ReservationReleased(reservation("r1"))]
    assert fleet.apply(RequestEnded("r1"), 1.0) == []


def test_a_request_that_shows_no_sign_of_life_is_given_up() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("r1")), 0.0)
    assert fleet.expire(LEASE - 1) == []
    assert fleet.expire(LEASE) == [ReservationReleased(reservation("r1"), expired=True)]
    assert fleet.apply(RequestEnded("r1"), LEASE + 1) == []


def test_a_request_that_progresses_is_not_given_up() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("r1")), 0.0)
    fleet.apply(RequestProgressed("r1"), 40.0)
    assert fleet.expire(LEASE) == []
    assert len(fleet.expire(40.0 + LEASE)) == 1


def test_the_length_of_answers_is_learned_per_pool() -> None:
    fleet = fleet_of(pool(A, name="one"), pool(B, name="two"))
    for number in range(2000):
        fleet.apply(RequestReserved(reservation(str(number), pool="one")), 0.0)
        fleet.apply(RequestEnded(str(number), output_tokens=40), 0.0)
    assert fleet.expected_output("one", None) == 40
    assert fleet.expected_output("two", None) == PRIOR_OUTPUT_TOKENS


def test_answers_vary_and_the_long_ones_are_known_too() -> None:
    fleet = fleet_of(pool(A))
    for number in range(1000):
        fleet.apply(RequestReserved(reservation(str(number))), 0.0)
        fleet.apply(RequestEnded(str(number), output_tokens=2000 if number % 5 == 0 else 20), 0.0)
    assert fleet.expected_output("default", None) == pytest.approx(416, rel=0.2)
    assert fleet.longest_output("default", None) == pytest.approx(2000, rel=0.35)
    assert fleet.longest_output("default", 64) == 64
    assert fleet.longest_output("default", 0) == 0


def test_an_answer_of_unknown_length_teaches_nothing() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("r1")), 0.0)
    fleet.apply(RequestEnded("r1", output_tokens=None), 0.0)
    assert fleet.expected_output("default", None) == PRIOR_OUTPUT_TOKENS


def test_an_embedding_does_not_make_answers_look_short() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("r1")), 0.0)
    fleet.apply(RequestEnded("r1", output_tokens=0), 0.0)
    assert fleet.expected_output("default", None) == PRIOR_OUTPUT_TOKENS


@pytest.mark.parametrize(("limit", "expected"), [(None, 250), (1000, 250), (16, 16), (0, 0), (-5, 0)])
def test_an_answer_is_not_expected_to_exceed_its_limit_nor_to_be_negative(limit: int | None, expected: int) -> None:
    assert fleet_of(pool(A)).expected_output("default", limit) == expected


def test_the_size_of_requests_is_learned_and_prices_those_of_others() -> None:
    fleet = fleet_of(pool(A, B))
    for number in range(300):
        fleet.apply(RequestReserved(reservation(str(number), address=B, prompt=90, output=10)), 0.0)
    report(fleet, A, 0.0, running=2.0)
    assert seen(fleet, A, 0.0).tokens == pytest.approx(200.0, rel=0.01)


def test_a_pool_that_stays_keeps_what_it_learned() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("r1")), 0.0)
    fleet.apply(RequestEnded("r1", output_tokens=10_000), 0.0)
    learned = fleet.expected_output("default", None)
    fleet.apply(PoolsDeclared((pool(A, B),)), 1.0)
    assert fleet.expected_output("default", None) == learned > PRIOR_OUTPUT_TOKENS


def test_a_request_of_a_pool_that_is_gone_is_released_all_the_same() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("r1")), 0.0)
    fleet.apply(PoolsDeclared(()), 1.0)
    assert len(fleet.apply(RequestEnded("r1", output_tokens=10), 2.0)) == 1


@pytest.mark.parametrize(
    "event",
    [
        ScrapeStarted("10.9.9.9:1"),
        LoadReported("10.9.9.9:1", EngineReport(running=1.0)),
        ScrapeFailed("10.9.9.9:1", unreachable=True, reason="refused"),
        RequestProgressed("never"),
        RequestEnded("never", output_tokens=5),
    ],
)
def test_events_about_what_is_not_known_change_nothing(event: FleetEvent) -> None:
    fleet = fleet_of(pool(A))
    before = fleet.views(1.0)
    assert fleet.apply(event, 1.0) == []
    assert fleet.views(1.0) == before


def test_a_reservation_on_an_unknown_endpoint_is_kept_until_it_ends() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation("r1", pool="gone", address=C)), 0.0)
    assert fleet.ledger.inflight(C).requests == 1
    assert len(fleet.apply(RequestEnded("r1"), 1.0)) == 1


def test_something_that_is_no_event_is_refused() -> None:
    with pytest.raises(TypeError, match="not a fleet event"):
        Fleet(LEASE).apply(cast("FleetEvent", "boom"), 0.0)
