"""How an endpoint is, by what is said of it, as time goes on."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.declare import A, fleet_of, pool, reservation, seen
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import (
    EvidenceReported,
    FleetChange,
    HealthChanged,
    LoadReported,
    PoolAlarmed,
    PoolsDeclared,
    RequestEnded,
    RequestReserved,
    TimePassed,
)
from tidegate.fleet.evidence import Ending, Evidence, Verdict
from tidegate.fleet.health import OUT, HealthRules, HealthStatus
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import EndpointView

EIGHT = tuple(f"10.0.0.{number}:8000" for number in range(1, 9))
RULES = HealthRules()
XID = Evidence("agent", Verdict.FAILED, ("xid_79",), "GPU 0 fell off the bus", 30.0)
SOUND = Evidence("agent", Verdict.SOUND, valid_seconds=6.0)
OPEN = Evidence("breaker", Verdict.FAILED, ("failures",), "5 in a row", 30.0)
STATUSES = HealthStatus


def eight(rules: HealthRules = RULES) -> Fleet:
    return fleet_of(PoolSpec("default", "vllm", ("*",), tuple(map(EndpointSpec, EIGHT)), health=rules))


def said(fleet: Fleet, evidence: Evidence, now: float, *addresses: str) -> list[FleetChange]:
    return [change for address in addresses or (A,) for change in fleet.apply(EvidenceReported(address, evidence), now)]


def at(fleet: Fleet, now: float, address: str = A) -> EndpointView:
    fleet.apply(TimePassed(), now)
    return seen(fleet, address, now)


def out(fleet: Fleet, now: float) -> list[str]:
    fleet.apply(TimePassed(), now)
    return [one.address for one in fleet.view("default", now).endpoints if one.health is HealthStatus.EJECTED]


# What speaks against an endpoint


def test_an_xid_ejects_at_once_and_says_why() -> None:
    fleet = eight()
    (changed,) = said(fleet, XID, 1.0)
    assert isinstance(changed, HealthChanged)
    assert (changed.health.status, changed.health.reasons) == (STATUSES.EJECTED, ("xid_79",))
    assert changed.detail == "GPU 0 fell off the bus"
    assert at(fleet, 1.0).ejected


def test_a_silent_agent_halves_a_share_and_never_ejects() -> None:
    fleet = eight()
    said(fleet, SOUND, 0.0, *EIGHT)
    for now in range(1, 100):
        said(fleet, SOUND, float(now), *EIGHT[1:])
        view = at(fleet, float(now))
        assert not view.ejected
    assert (view.health, view.share, view.weight) == (STATUSES.DEGRADED, 0.5, 0.5)
    assert view.pace.step_seconds == pytest.approx(2 * at(fleet, 100.0, EIGHT[1]).pace.step_seconds)


def test_an_agent_that_condemned_and_then_fell_silent_is_only_silent() -> None:
    fleet = eight()
    said(fleet, XID, 0.0)
    assert at(fleet, 29.0).health is STATUSES.EJECTED
    assert at(fleet, 40.0).health is STATUSES.DEGRADED
    assert at(fleet, 4000.0).health is STATUSES.HEALTHY


def test_where_all_agents_are_silent_nobody_gets_less() -> None:
    fleet = eight()
    said(fleet, SOUND, 0.0, *EIGHT)
    fleet.apply(TimePassed(), 20.0)
    views = fleet.view("default", 20.0).endpoints
    assert {(one.health, one.share) for one in views} == {(STATUSES.DEGRADED, 1.0)}


def test_an_agent_that_cannot_tell_costs_nothing_even_when_it_falls_silent() -> None:
    fleet = eight()
    said(fleet, SOUND, 0.0)
    said(fleet, Evidence("agent", Verdict.UNKNOWN, ("no_driver",), "", 6.0), 1.0)
    assert at(fleet, 1.0).health is STATUSES.HEALTHY
    assert at(fleet, 100.0).health is STATUSES.HEALTHY


def test_a_check_that_fails_while_requests_progress_means_busy() -> None:
    fleet = eight()
    fleet.apply(RequestReserved(reservation()), 0.0)
    fleet.apply(RequestEnded("r1", 50, ending=Ending.SERVED), 1.0)
    said(fleet, Evidence("http", Verdict.FAILED, ("timeout",)), 2.0)
    assert at(fleet, 2.0).health is STATUSES.DEGRADED
    assert at(fleet, 12.0).health is STATUSES.EJECTED


def test_tokens_that_an_engine_counts_are_progress() -> None:
    fleet = eight()
    fleet.apply(LoadReported(A, EngineReport(generation_tokens_total=10.0)), 0.0)
    fleet.apply(LoadReported(A, EngineReport(generation_tokens_total=20.0)), 1.0)
    said(fleet, Evidence("http", Verdict.FAILED, ("timeout",)), 2.0)
    assert at(fleet, 2.0).health is STATUSES.DEGRADED


@pytest.mark.parametrize("source", ["breaker", "progress", "connection", "agent"])
def test_what_is_seen_of_requests_and_gpus_condemns_though_others_progress(source: str) -> None:
    fleet = eight()
    fleet.apply(RequestReserved(reservation()), 0.0)
    fleet.apply(RequestEnded("r1", 50, ending=Ending.SERVED), 1.0)
    said(fleet, Evidence(source, Verdict.FAILED), 1.0)
    assert at(fleet, 1.0).health is STATUSES.EJECTED


def test_a_half_open_breaker_is_tried_before_anything_else_comes_back() -> None:
    fleet = eight()
    said(fleet, OPEN, 0.0)
    said(fleet, Evidence("breaker", Verdict.IMPAIRED, ("half_open",)), 5.0)
    view = at(fleet, 6.0)
    assert (view.health, view.share) == (STATUSES.DEGRADED, 1.0)
    said(fleet, Evidence("breaker", Verdict.SOUND), 7.0)
    view = at(fleet, 10.0)
    assert (view.health, view.share) == (STATUSES.WARMING, 0.1)


# Through time


def test_a_flapping_endpoint_is_held_for_longer_and_longer() -> None:
    fleet = eight()
    ejections = []
    for now in range(0, 300, 2):
        changes = said(fleet, OPEN if now % 4 == 0 else Evidence("breaker", Verdict.SOUND), float(now))
        ejections += [
            one for one in changes if isinstance(one, HealthChanged) and one.health.status is STATUSES.EJECTED
        ]
        fleet.apply(TimePassed(), now + 1.0)
    assert len(ejections) == 1  # it never was calm for long enough to be let off


def test_each_ejection_holds_twice_as_long_as_the_last_until_that_is_forgiven() -> None:
    fleet, now, holds = eight(), 0.0, []
    for _ in range(8):
        said(fleet, OPEN, now)
        said(fleet, Evidence("breaker", Verdict.SOUND), now)
        began = now
        while at(fleet, now).ejected:
            now += 0.5
        holds.append(now - began)
    assert holds == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    now += 20 * RULES.forgive_seconds
    said(fleet, OPEN, now)
    said(fleet, Evidence("breaker", Verdict.SOUND), now)
    assert at(fleet, now + 4.5).ejected
    assert not at(fleet, now + 5.0).ejected


def test_how_often_it_was_ejected_of_late_is_forgotten_while_it_is_well() -> None:
    fleet, told = eight(), []
    said(fleet, OPEN, 0.0)
    said(fleet, Evidence("breaker", Verdict.SOUND), 1.0)
    for now in (1.0, 10.0, 11.0 + RULES.forgive_seconds, 600.0):
        fleet.apply(TimePassed(), now)
        outlook = fleet.outlook(A, now)
        assert outlook is not None
        told.append(outlook.ejections)
    assert told == [1, 1, 0, 0]


def test_one_that_comes_back_gets_its_share_little_by_little() -> None:
    fleet = eight()
    said(fleet, OPEN, 0.0)
    said(fleet, Evidence("breaker", Verdict.SOUND), 1.0)
    shares = [at(fleet, 5.0 + second).share for second in range(31)]
    assert shares[0] == 0.1
    assert shares == sorted(shares)
    assert len(set(shares)) == 10
    assert shares[-1] == 1.0
    assert at(fleet, 35.0).health is STATUSES.HEALTHY


def test_one_that_joins_warms_up_and_a_whole_new_pool_does_not() -> None:
    fleet = fleet_of(pool(*EIGHT[1:]))
    assert at(fleet, 1.0, EIGHT[1]).health is STATUSES.HEALTHY
    fleet.apply(PoolsDeclared((pool(*EIGHT),)), 2.0)
    assert (at(fleet, 2.0).health, at(fleet, 2.0).share) == (STATUSES.WARMING, 0.1)
    assert at(fleet, 32.0).health is STATUSES.HEALTHY


def test_one_that_drains_gets_nothing_and_does_not_count_among_the_ejected() -> None:
    members = (EndpointSpec(A, drain=True), *map(EndpointSpec, EIGHT[1:3]))
    fleet = fleet_of(PoolSpec("default", "vllm", ("*",), members))
    assert (at(fleet, 0.0).health, at(fleet, 0.0).ejected) == (STATUSES.DRAINING, True)
    said(fleet, OPEN, 1.0, EIGHT[1])
    assert out(fleet, 1.0) == [EIGHT[1]]
    fleet.apply(PoolsDeclared((pool(A, *EIGHT[1:3]),)), 2.0)
    assert (at(fleet, 2.0).health, at(fleet, 2.0).share) == (STATUSES.WARMING, 0.1)


def test_an_endpoint_on_its_way_to_another_pool_is_judged_there_and_left_out_by_both() -> None:
    fleet = fleet_of(pool(A, name="old"), pool(*EIGHT[1:4], name="new"))
    fleet.apply(PoolsDeclared((pool(A, name="old"), pool(A, *EIGHT[1:4], name="new"))), 1.0)
    said(fleet, OPEN, 2.0)
    for now in range(2, 6):
        assert not any(isinstance(change, HealthChanged) for change in fleet.apply(TimePassed(), float(now)))
        assert [one.ejected for one in fleet.view("old", float(now)).endpoints] == [True]
    assert not fleet.is_well("old")


# Many at once


def test_when_more_than_half_look_bad_nobody_is_ejected_and_it_is_said() -> None:
    fleet = eight()
    said(fleet, OPEN, 1.0, *EIGHT[:4])
    assert out(fleet, 1.0) == list(EIGHT[:4])
    changes = said(fleet, OPEN, 2.0, EIGHT[4])
    (alarm,) = [change for change in changes if isinstance(change, PoolAlarmed)]
    assert (alarm.alarm.panic, alarm.alarm.bad, alarm.alarm.of) == (True, 5, 8)
    assert out(fleet, 2.0) == []
    assert {one.share for one in fleet.view("default", 2.0).endpoints} == {1.0}


def test_one_that_is_alone_is_never_ejected_and_nobody_is_alarmed() -> None:
    fleet = fleet_of(PoolSpec("default", "vllm", ("*",), (EndpointSpec(A),), health=HealthRules(max_ejected=1.0)))
    changes = said(fleet, OPEN, 1.0)
    assert not any(isinstance(change, PoolAlarmed) for change in changes)
    assert (at(fleet, 1.0).health, at(fleet, 1.0).share) == (STATUSES.DEGRADED, 1.0)


def test_of_more_than_may_be_ejected_those_go_that_were_bad_first_and_the_others_get_little() -> None:
    fleet = eight(HealthRules(max_ejected=0.25))
    for second, address in enumerate(EIGHT[:4]):
        said(fleet, OPEN, float(second), address)
    assert out(fleet, 4.0) == list(EIGHT[:2])
    spared = at(fleet, 4.0, EIGHT[3])
    assert (spared.health, spared.share) == (STATUSES.DEGRADED, RULES.least_share)


def test_agents_alone_that_condemn_many_are_not_believed() -> None:
    fleet = eight()
    said(fleet, XID, 1.0, *EIGHT[:2])
    assert out(fleet, 1.0) == list(EIGHT[:2])
    changes = said(fleet, XID, 2.0, EIGHT[2], EIGHT[3])
    (alarm,) = [change for change in changes if isinstance(change, PoolAlarmed)]
    assert (alarm.alarm.panic, alarm.alarm.doubt) == (False, True)
    assert out(fleet, 2.0) == []
    assert at(fleet, 2.0).share == RULES.degraded_share
    said(fleet, OPEN, 3.0, EIGHT[2])  # requests fail there as well
    assert out(fleet, 3.0) == [EIGHT[2]]


# Anything at any time

EVIDENCE = st.builds(
    Evidence,
    st.sampled_from(["agent", "breaker", "http", "progress", "connection", "x" * 100]),
    st.sampled_from(Verdict),
    st.lists(st.sampled_from(["xid_79", "half_open", "r" * 1000]), max_size=3).map(tuple),
    st.just(""),
    st.sampled_from([math.inf, math.nan, -math.inf, -1.0, 0.0, 2.0, 1e308]),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(EIGHT), EVIDENCE, st.sampled_from([0.0, 0.1, 1.0, 5.0, 60.0, 1e9, -1.0, -1e6])),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]), st.sampled_from([0.3, 0.5, 1.0]))
def test_the_cap_holds_panic_ejects_nobody_and_nobody_is_let_off_before_his_time(
    steps: list[tuple[str, Evidence, float]], cap: float, panic: float
) -> None:
    fleet, now = eight(HealthRules(max_ejected=cap, panic=panic)), 0.0
    since: dict[str, float] = {}
    panics = False
    for address, evidence, pause in steps:
        now += pause
        changes = [*said(fleet, evidence, now, address), *fleet.apply(TimePassed(), now)]
        views = fleet.view("default", now).endpoints
        ejected = [one.address for one in views if one.health is STATUSES.EJECTED]
        assert len(ejected) <= cap * len(EIGHT) + 1e-9
        panicked = panics
        for change in changes:
            if isinstance(change, PoolAlarmed):
                panics = change.alarm.panic
                panicked |= panics
        assert not (panics and ejected)
        for one in views:
            assert 0.0 < one.share <= 1.0
            assert one.ejected is (one.health in OUT)
        if pause < 0:
            since.clear()
        for change in changes:
            if isinstance(change, HealthChanged):
                if change.before.status is STATUSES.EJECTED and change.address in since and not panicked:
                    assert now - since[change.address] >= 5.0 - 1e-6
                since.pop(change.address, None)
                if change.health.status is STATUSES.EJECTED:
                    since[change.address] = now


@settings(max_examples=50, deadline=None)
@given(STEPS, st.integers(0, 60))
def test_a_fleet_that_is_restored_goes_on_as_the_one_it_was_taken_from(
    steps: list[tuple[str, Evidence, float]], cut: int
) -> None:
    fleet, replica, now = eight(), Fleet(45.0), 0.0
    for number, (address, evidence, pause) in enumerate(steps):
        if number == cut:
            replica.restore(fleet.image(), now)
        now += max(0.0, pause)
        told = [*said(fleet, evidence, now, address), *fleet.apply(TimePassed(), now)]
        if number >= cut:
            assert [*said(replica, evidence, now, address), *replica.apply(TimePassed(), now)] == told
            assert replica.views(now) == fleet.views(now)
