"""Endpoints that join: they get nothing until they have shown that they are ready, and nobody is kept out for ever."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet.declare import fleet_of, reservation, seen
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import (
    EvidenceReported,
    FleetChange,
    FleetEvent,
    HealthChanged,
    LoadReported,
    PoolsDeclared,
    RequestEnded,
    RequestReserved,
    ScrapeFailed,
    TimePassed,
)
from tidegate.fleet.evidence import Ending, Evidence, Verdict
from tidegate.fleet.health import OUT, HealthRules, HealthStatus
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet

EIGHT = tuple(f"10.0.0.{number}:8000" for number in range(1, 9))
OLD, NEW = EIGHT[:2], EIGHT[2:]
RULES = HealthRules(ready_by="any", ready_seconds=30.0)
JOINING, WARMING, HEALTHY = HealthStatus.JOINING, HealthStatus.WARMING, HealthStatus.HEALTHY
HEARD = EngineReport(running=0.0, waiting=0.0)


def pool(*addresses: str, rules: HealthRules = RULES, drained: tuple[str, ...] = ()) -> PoolSpec:
    members = tuple(EndpointSpec(address, drain=address in drained) for address in addresses)
    return PoolSpec("default", "vllm", ("*",), members, health=rules)


def grown(rules: HealthRules = RULES) -> Fleet:
    """Return a fleet of two that are heard, which six more have joined in second 10."""
    fleet = fleet_of(pool(*OLD, rules=rules))
    for address in OLD:
        fleet.apply(LoadReported(address, HEARD), 1.0)
    fleet.apply(PoolsDeclared((pool(*EIGHT, rules=rules),)), 10.0)
    return fleet


def statuses(fleet: Fleet, now: float) -> list[HealthStatus]:
    fleet.apply(TimePassed(), now)
    return [one.health for one in fleet.view("default", now).endpoints]


def heard(fleet: Fleet, now: float, *addresses: str) -> list[FleetChange]:
    return [change for address in addresses for change in fleet.apply(LoadReported(address, HEARD), now)]


def refused(fleet: Fleet, now: float, *addresses: str) -> None:
    for address in addresses * 3:
        fleet.apply(ScrapeFailed(address, unreachable=True, reason="refused"), now)


def test_those_who_join_get_nothing_until_they_are_heard_and_then_warm_up() -> None:
    fleet = grown()
    assert statuses(fleet, 10.0) == [HEALTHY] * 2 + [JOINING] * 6
    assert all(seen(fleet, address, 10.0).ejected for address in NEW)
    (change,) = [one for one in heard(fleet, 12.0, NEW[0]) if isinstance(one, HealthChanged)]
    assert (change.before.status, change.health.status, change.health.reasons) == (JOINING, WARMING, ("joined",))
    assert seen(fleet, NEW[0], 12.0).share == 0.1
    assert statuses(fleet, 12.0)[3:] == [JOINING] * 5
    assert seen(fleet, NEW[0], 12.0).ejected is False
    assert statuses(fleet, 42.0)[2] is HEALTHY


def test_becoming_a_member_is_said_with_its_reason() -> None:
    fleet = fleet_of(pool(*OLD))
    changes = [one for one in fleet.apply(PoolsDeclared((pool(*EIGHT),)), 10.0) if isinstance(one, HealthChanged)]
    assert {(one.address, one.health.status, one.health.reasons) for one in changes} == {
        (address, JOINING, ("unready",)) for address in NEW
    }


def test_an_engine_that_gives_no_sign_is_let_in_when_the_time_is_over() -> None:
    fleet = grown()
    assert statuses(fleet, 39.9)[2:] == [JOINING] * 6
    changes = [one for one in fleet.apply(TimePassed(), 40.0) if isinstance(one, HealthChanged)]
    assert {(one.health.status, one.health.reasons) for one in changes} == {(WARMING, ("unconfirmed",))}


def test_one_that_cannot_be_reached_is_waited_for_as_long_as_it_takes() -> None:
    fleet = grown()
    refused(fleet, 11.0, *NEW)
    assert statuses(fleet, 500.0)[2:] == [JOINING] * 6
    # Six of eight that load a model for minutes are no reason to think that something else is the matter.
    assert not fleet.alarms()["default"].panic
    heard(fleet, 501.0, NEW[0])
    assert statuses(fleet, 501.0)[2:4] == [WARMING, JOINING]


@pytest.mark.parametrize(
    ("ready_by", "sign"),
    [
        ("metrics", LoadReported(NEW[0], HEARD)),
        ("http", EvidenceReported(NEW[0], Evidence("http", Verdict.SOUND))),
        ("model_loaded", EvidenceReported(NEW[0], Evidence("model_loaded", Verdict.SOUND))),
        ("any", LoadReported(NEW[0], EngineReport())),
        ("any", EvidenceReported(NEW[0], Evidence("tcp", Verdict.SOUND))),
    ],
)
def test_the_sign_that_is_wanted_counts(ready_by: str, sign: FleetEvent) -> None:
    fleet = grown(HealthRules(ready_by=ready_by))
    fleet.apply(sign, 11.0)
    assert statuses(fleet, 11.0)[2:4] == [WARMING, JOINING]


@pytest.mark.parametrize(
    ("ready_by", "sign"),
    [
        ("model_loaded", LoadReported(NEW[0], HEARD)),
        ("metrics", EvidenceReported(NEW[0], Evidence("http", Verdict.SOUND))),
        ("any", EvidenceReported(NEW[0], Evidence("agent", Verdict.SOUND))),
        ("any", EvidenceReported(NEW[0], Evidence("progress", Verdict.SOUND))),
        ("any", EvidenceReported(NEW[0], Evidence("http", Verdict.UNKNOWN))),
        ("any", ScrapeFailed(NEW[0], unreachable=False, reason="HTTP 404")),
    ],
)
def test_another_one_does_not(ready_by: str, sign: FleetEvent) -> None:
    fleet = grown(HealthRules(ready_by=ready_by))
    fleet.apply(sign, 11.0)
    assert statuses(fleet, 11.0)[2] is JOINING


def test_one_that_is_heard_and_fails_its_check_is_not_ready_yet() -> None:
    fleet = grown()
    fleet.apply(EvidenceReported(NEW[0], Evidence("model_loaded", Verdict.FAILED, ("not_listed",))), 11.0)
    heard(fleet, 12.0, NEW[0])
    assert statuses(fleet, 100.0)[2] is JOINING
    outlook = fleet.outlook(NEW[0], 100.0)
    assert outlook is not None
    assert outlook.health.reasons == ("not_listed",)
    fleet.apply(EvidenceReported(NEW[0], Evidence("model_loaded", Verdict.SOUND)), 101.0)
    assert statuses(fleet, 101.0)[2] is WARMING


def test_without_a_sign_to_wait_for_it_warms_up_at_once() -> None:
    fleet = grown(HealthRules())
    assert statuses(fleet, 10.0)[2:] == [WARMING] * 6


def test_one_that_has_been_ready_is_ejected_like_any_other_later() -> None:
    fleet = grown()
    heard(fleet, 11.0, *NEW)
    refused(fleet, 50.0, NEW[0])
    assert statuses(fleet, 50.0)[2] is HealthStatus.EJECTED


def test_a_pool_that_is_new_serves_at_once() -> None:
    """A control plane that starts knows nobody, and makes no request wait for that."""
    fleet = fleet_of(pool(*EIGHT))
    assert statuses(fleet, 0.0) == [HEALTHY] * 8
    heard(fleet, 0.2, EIGHT[0])
    assert statuses(fleet, 0.2) == [HEALTHY] * 8, "the first that is heard does not get everything"
    heard(fleet, 0.4, *EIGHT)
    assert {one.share for one in fleet.view("default", 0.4).endpoints} == {1.0}


def test_in_a_new_pool_those_that_do_not_answer_are_judged_like_any_other() -> None:
    fleet = fleet_of(pool(*EIGHT))
    heard(fleet, 0.2, *OLD)
    refused(fleet, 0.6, NEW[0])
    assert statuses(fleet, 1.0)[2] is HealthStatus.EJECTED
    refused(fleet, 1.6, *NEW[1:])
    assert not OUT & {*statuses(fleet, 2.0)}
    assert fleet.alarms()["default"].panic, "most look bad, and nobody is left out"


def test_where_nobody_who_was_there_can_serve_those_who_join_do_and_it_is_said() -> None:
    fleet = grown()
    refused(fleet, 11.0, *NEW[1:])
    refused(fleet, 12.0, *OLD)
    assert statuses(fleet, 12.0)[2] is WARMING, "nothing bad is known of it"
    assert statuses(fleet, 12.0)[3:] == [JOINING] * 5
    refused(fleet, 13.0, NEW[0])
    assert fleet.alarms()["default"][:3] == (True, False, 8), "all are bad, so all are used"
    assert not OUT & {*statuses(fleet, 13.0)}
    heard(fleet, 14.0, NEW[5])
    assert statuses(fleet, 14.0)[3:7] == [JOINING] * 4


def test_new_ones_serve_at_once_when_all_the_old_ones_leave() -> None:
    fleet = grown()
    fleet.apply(PoolsDeclared((pool(*EIGHT, drained=OLD),)), 11.0)
    assert statuses(fleet, 11.0) == [HealthStatus.DRAINING] * 2 + [WARMING] * 6
    assert {seen(fleet, address, 11.0).share for address in NEW} == {1.0}
    heard(fleet, 11.2, NEW[0])
    assert statuses(fleet, 11.2)[2:] == [WARMING] * 6, "the first that is heard does not get everything"


def test_a_request_that_was_served_is_a_sign() -> None:
    fleet = grown(HealthRules(ready_by="inference", ready_seconds=5.0))
    assert statuses(fleet, 15.0)[2] is WARMING
    fleet.apply(RequestReserved(reservation(address=NEW[0], at=15.0)), 15.0)
    fleet.apply(RequestEnded("r1", 50, ending=Ending.SERVED), 16.0)
    refused(fleet, 17.0, *NEW[:2])
    assert statuses(fleet, 17.0)[2:4] == [HealthStatus.EJECTED, JOINING]


def test_agents_that_condemn_everybody_at_the_start_keep_nobody_out() -> None:
    fleet = fleet_of(pool(*EIGHT))
    for address in EIGHT[:6]:
        fleet.apply(EvidenceReported(address, Evidence("agent", Verdict.FAILED, ("xid_79",))), 0.1)
    assert not OUT & {*statuses(fleet, 1.0)}


def test_a_clock_that_goes_back_lengthens_no_wait() -> None:
    fleet = grown()
    fleet.apply(TimePassed(), 30.0)
    fleet.apply(TimePassed(), 5.0)
    assert statuses(fleet, 14.0)[2] is JOINING
    assert statuses(fleet, 16.0)[2] is WARMING


def test_what_would_let_it_in_is_told() -> None:
    fleet = grown(HealthRules(ready_by="http", ready_seconds=30.0))
    outlook = fleet.outlook(NEW[0], 20.0)
    assert outlook is not None
    assert outlook.would_change == (
        "it gets its share over 30 s once it has shown it by http",
        "it is waited for 20 s more",
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(EIGHT),
        st.sampled_from(["heard", "refused", "passed", "failed", "served", "nothing"]),
        st.sampled_from([0.0, 0.3, 1.0, 5.0, 40.0]),
        st.sets(st.sampled_from(EIGHT), min_size=1),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from(["any", "http", ""]))
def test_somebody_is_always_there_and_nobody_is_kept_out_without_a_cause(
    steps: list[tuple[str, str, float, set[str]]], ready_by: str
) -> None:
    rules = HealthRules(ready_by=ready_by, ready_seconds=30.0)
    fleet, replica, now = fleet_of(pool(*OLD, rules=rules)), Fleet(45.0), 0.0
    replica.restore(fleet.image(), now)
    for address, what, pause, members in steps:
        now += pause
        facts: dict[str, FleetEvent] = {
            "heard": LoadReported(address, HEARD),
            "refused": ScrapeFailed(address, unreachable=True, reason="refused"),
            "passed": EvidenceReported(address, Evidence("http", Verdict.SOUND)),
            "failed": EvidenceReported(address, Evidence("http", Verdict.FAILED)),
            "served": RequestEnded("r1", ending=Ending.SERVED),
            "nothing": PoolsDeclared((pool(*sorted(members), rules=rules),)),
        }
        for fact in (facts[what], TimePassed()):
            assert fleet.apply(fact, now) == replica.apply(fact, now)
        views = fleet.view("default", now).endpoints
        assert not all(one.ejected for one in views), "a pool is never left with nobody"
        assert fleet.image() == replica.image()
    calm = now + 1000.0
    for address in EIGHT:
        fleet.apply(EvidenceReported(address, Evidence("http", Verdict.UNKNOWN)), calm)
        fleet.apply(LoadReported(address, HEARD), calm)
    assert JOINING not in statuses(fleet, calm + 1.0)
