"""Whole runs: the production code over virtual engines."""

import pytest

from tidegate.fleet.events import FleetChange, FleetEvent, RequestEnded
from tidegate.simulator.virtual.conditions import Conditions, Fault, FaultKind
from tidegate.simulator.virtual.fleet import FleetSpec
from tidegate.simulator.virtual.outcome import Ending
from tidegate.simulator.virtual.report import SLO, simulate
from tidegate.simulator.virtual.simulation import Simulation, policies
from tidegate.simulator.virtual.workload import Arrival, Workload

FLEET = FleetSpec.parse("h100:2,rtx4090:2")


def steady(requests: int = 200, every: float = 0.05, prompt: int = 800, answer: int = 60) -> Workload:
    return Workload("steady", [Arrival(at * every, prompt, answer) for at in range(requests)])


@pytest.mark.parametrize("policy", policies())
def test_every_policy_answers_every_request(policy: str) -> None:
    report = simulate(FLEET, steady(), policy)
    assert report.endings == {**dict.fromkeys((ending.value for ending in Ending), 0), "answered": 200}
    assert report.requests == 200


@pytest.mark.parametrize("policy", policies())
def test_the_same_seed_brings_the_same_report(policy: str) -> None:
    assert simulate(FLEET, steady(), policy, seed=3) == simulate(FLEET, steady(), policy, seed=3)


def test_another_seed_brings_another_run() -> None:
    assert simulate(FLEET, steady(), "random", seed=3) != simulate(FLEET, steady(), "random", seed=4)


def test_more_load_makes_nothing_better() -> None:
    calm, busy = (simulate(FLEET, steady(400, every), "least_tokens") for every in (0.2, 0.01))
    assert (busy.end_to_end.mean or 0) > (calm.end_to_end.mean or 0)
    assert (busy.ttft.p99 or 0) > (calm.ttft.p99 or 0)
    assert busy.kv_usage > calm.kv_usage


def test_the_oracle_is_no_worse_than_who_sees_less() -> None:
    busy = steady(600, 0.02)
    oracle = simulate(FLEET, busy, "oracle").end_to_end.mean or 0
    for policy in ("random", "round_robin", "least_request"):
        assert oracle < (simulate(FLEET, busy, policy).end_to_end.mean or 0)


def test_requests_on_an_engine_that_dies_fail_and_others_go_to_the_fallback() -> None:
    conditions = Conditions(faults=(Fault(FaultKind.DIE, 0, 2.0, 100.0),))
    recording = Simulation(FLEET, steady(), "round_robin", conditions=conditions).run()
    failed = [one for one in recording.outcomes if one.ending is Ending.FAILED]
    assert failed
    assert all(one.endpoint == "10.0.0.0:8000" and one.arrived < 2.0 for one in failed)
    assert all(one.endpoint != "10.0.0.0:8000" for one in recording.outcomes if one.arrived > 2.0)
    assert all(one.ending is Ending.ANSWERED for one in recording.outcomes if one.arrived > 2.0)


@pytest.mark.parametrize(("fault", "failed"), [((), False), ((Fault(FaultKind.DIE, 1, 0.01, 100.0),), True)])
def test_an_endpoint_that_refused_a_request_is_told_to_have_failed_it_even_if_another_served_it(
    fault: tuple[Fault, ...], failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[RequestEnded] = []
    simulation = Simulation(FLEET, steady(40), "round_robin", conditions=Conditions(faults=fault))
    apply = simulation._fleet.apply

    def listen(event: FleetEvent, now: float) -> list[FleetChange]:
        if isinstance(event, RequestEnded):
            told.append(event)
        return apply(event, now)

    monkeypatch.setattr(simulation._fleet, "apply", listen)
    outcomes = simulation.run().outcomes
    assert all(one.ending is Ending.ANSWERED for one in outcomes)
    assert [event.failed for event in told if event.reservation_id == "1"] == [failed]
    assert [event.failed for event in told if event.reservation_id == "2"] == [False]


def test_an_engine_that_is_back_serves_again() -> None:
    conditions = Conditions(faults=(Fault(FaultKind.DIE, 0, 2.0, 2.0),))
    recording = Simulation(FLEET, steady(), "round_robin", conditions=conditions).run()
    assert any(one.endpoint == "10.0.0.0:8000" for one in recording.outcomes if one.arrived > 6.0)


def test_a_fleet_that_is_all_dead_fails_every_request() -> None:
    faults = tuple(Fault(FaultKind.DIE, at, 0.0, 1e6) for at in range(4))
    report = simulate(FLEET, steady(50), "least_request", conditions=Conditions(faults=faults))
    assert report.endings["failed"] == 50
    assert report.ttft.p50 is None
    assert report.goodput == 0


@pytest.mark.parametrize("kind", [FaultKind.FREEZE, FaultKind.SLOW])
def test_a_frozen_or_slow_engine_makes_its_requests_late_and_loses_none(kind: FaultKind) -> None:
    conditions = Conditions(faults=(Fault(kind, 1, 1.0, 5.0),))
    sound, faulty = (simulate(FLEET, steady(), "round_robin", conditions=given) for given in (None, conditions))
    assert faulty.endings["answered"] == 200
    assert (faulty.end_to_end.p99 or 0) > 1.3 * (sound.end_to_end.p99 or 0)


def test_a_prompt_that_an_engine_cannot_hold_is_refused_by_it() -> None:
    report = simulate(FleetSpec.parse("rtx4090:1"), steady(3, prompt=40_000), "random")
    assert report.endings["too_long"] == 3


def test_shared_prefixes_are_found_in_the_cache() -> None:
    arrivals = [Arrival(at * 0.5, 1_024, 8, (1, 2), 512) for at in range(20)]
    report = simulate(FleetSpec.parse("h100:1"), Workload("same", arrivals), "random")
    # The last block of a prompt is computed anew: the first token comes from it.
    assert report.cache_hit_rate == pytest.approx(19 * 512 / (20 * 1_024))


def test_the_warm_up_does_not_count() -> None:
    report = simulate(FLEET, steady(), "random", warmup=0.25)
    assert report.requests == 150
    with pytest.raises(ValueError, match="warm-up"):
        simulate(FLEET, steady(), "random", warmup=1.0)


def test_a_policy_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match="psychic"):
        simulate(FLEET, steady(), "psychic")


def test_a_fault_needs_an_endpoint() -> None:
    with pytest.raises(ValueError, match="expected 0 to 3"):
        Simulation(FLEET, steady(), "random", conditions=Conditions(faults=(Fault(FaultKind.DIE, 4, 0.0, 1.0),)))


def test_goodput_is_the_share_that_meets_both_bounds() -> None:
    loose, tight = (simulate(FLEET, steady(), "random", slo=slo) for slo in (SLO(100.0, 100.0), SLO(100.0, 0.01)))
    assert loose.goodput == 1.0
    assert 0 < tight.goodput < 1.0
    assert loose.goodput_per_second == pytest.approx(200 / loose.seconds)
