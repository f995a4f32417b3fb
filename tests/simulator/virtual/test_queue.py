"""Runs with a queue in front of the pool: the admission that runs live, under virtual time and too much load."""

from collections import Counter

import pytest

from tidegate.scheduling.line import QueueSettings
from tidegate.scheduling.queue import Bounds
from tidegate.simulator.virtual import capacity, synthetic
from tidegate.simulator.virtual.classes import TURNED_AWAY, by_class, waits
from tidegate.simulator.virtual.conditions import Conditions, Fault, FaultKind
from tidegate.simulator.virtual.fleet import FleetSpec
from tidegate.simulator.virtual.outcome import Ending, Outcome
from tidegate.simulator.virtual.report import SLO, Report, simulate
from tidegate.simulator.virtual.simulation import Simulation
from tidegate.simulator.virtual.workload import Arrival, Workload

FLEET = FleetSpec.parse("a100:2")
SHORT = QueueSettings(max_wait_seconds=1.5, batch_max_wait_seconds=5.0)
REACHABLE = SLO(ttft=2.0, tpot=0.2)
"""An A100 with a full batch takes more than a tenth of a second for a token."""


def overloaded(kind: str, times: float, queue: QueueSettings | None, requests: int = 2_000) -> Report:
    workload = capacity.at_utilisation(FLEET, synthetic.make(kind, requests, 20.0, 1), times)
    return simulate(FLEET, workload, "predicted_latency", queue=queue, slo=REACHABLE)


def test_without_too_much_load_hardly_anything_waits() -> None:
    with_queue, without = (overloaded("poisson", 0.6, queue) for queue in (SHORT, None))
    assert with_queue.endings["answered"] == 2_000
    assert with_queue.waits is None or with_queue.waits.requests < 20
    assert with_queue.goodput == pytest.approx(without.goodput, abs=0.005)
    assert with_queue.end_to_end.mean == pytest.approx(without.end_to_end.mean, rel=0.02)


def test_what_finds_no_room_waits_and_most_of_what_is_answered_is_answered_in_time() -> None:
    with_queue, without = (overloaded("poisson", 2.0, queue) for queue in (SHORT, None))
    assert with_queue.waits is not None
    assert with_queue.goodput_per_second > 5 * without.goodput_per_second
    assert (with_queue.ttft.p99 or 0) < 5.0 < (without.ttft.p99 or 0)
    assert sum(with_queue.endings[ending.value] for ending in TURNED_AWAY) > 100
    assert without.waits is None


def test_waits_are_foretold() -> None:
    found = overloaded("poisson", 2.0, QueueSettings(max_wait_seconds=20.0), 3_000).waits
    assert found is not None
    assert found.waited.p50 is not None
    assert found.error.p50 is not None
    assert found.relative_error.p50 is not None
    assert found.waited.p50 > 2.0
    assert found.relative_error.p50 < 0.25


def test_the_urgent_are_served_as_if_nothing_else_were_there() -> None:
    urgent, normal, batch = overloaded("classes", 3.0, SHORT).classes
    assert (urgent.priority, normal.priority, batch.priority) == (10, 0, -1)
    assert not urgent.turned_away
    assert urgent.goodput > 0.9
    assert normal.turned_away
    assert batch.goodput < 0.1


def test_no_request_waits_for_longer_than_it_may_and_every_request_ends() -> None:
    workload = capacity.at_utilisation(FLEET, synthetic.make("classes", 1_500, 20.0, 2), 4.0)
    recording = Simulation(FLEET, workload, "least_tokens", queue=SHORT).run()
    assert {one.ending for one in recording.outcomes} >= {Ending.ANSWERED, Ending.EXPIRED}
    assert Ending.UNFINISHED not in {one.ending for one in recording.outcomes}
    for one in recording.outcomes:
        most = SHORT.batch_max_wait_seconds if one.priority < 0 else SHORT.max_wait_seconds
        assert (one.waited or 0.0) <= most + 1e-6
        assert (one.endpoint == "") == (one.ending in TURNED_AWAY), "what is turned away never reached an engine"


def test_how_many_endpoints_are_needed_can_be_asked_of_a_fleet_with_a_queue() -> None:
    workload = synthetic.make("bursts", 300, 20.0, 1)
    found = capacity.endpoints_needed(FLEET, workload, "least_tokens", slo=REACHABLE, target=0.9, most=16, queue=SHORT)
    assert found is not None
    count, report = found
    assert report.goodput >= 0.9
    assert report.waits is not None
    assert 1 <= count <= 16


def test_a_queue_that_is_full_sheds_the_least_urgent_first() -> None:
    settings = QueueSettings(Bounds(requests=20), max_wait_seconds=30.0)
    urgent, _, batch = overloaded("classes", 3.0, settings).classes
    assert not urgent.turned_away
    # The others leave it nothing: as soon as that is known, it is told so instead of being shed.
    assert set(batch.turned_away) <= {"queue_full", "shed", "wait_too_long"}
    assert sum(batch.turned_away.values()) > batch.requests / 2


def test_what_waits_is_served_when_the_fleet_is_back() -> None:
    steady = Workload("steady", [Arrival(at * 0.05, 800, 60) for at in range(200)])
    faults = tuple(Fault(FaultKind.DIE, at, 2.0, 4.0) for at in range(2))
    recording = Simulation(FLEET, steady, "least_request", 0, Conditions(faults=faults), queue=QueueSettings()).run()
    during = [one for one in recording.outcomes if 5.2 < one.arrived < 6.0]
    assert {one.ending for one in during} == {Ending.ANSWERED}, "once it is known that nobody is there"
    assert all((one.waited or 0.0) > 0.0 for one in during)


def outcome(tenant: str, tokens: int, waited: float | None, estimate: float | None, ending: Ending) -> Outcome:
    return Outcome(0.0, tokens, 0, ending=ending, tenant=tenant, waited=waited, estimate=estimate)


def test_errors_of_estimates_are_those_of_requests_that_waited_and_went() -> None:
    found = waits(
        [
            outcome("a", 100, 10.0, 8.0, Ending.ANSWERED),
            outcome("a", 100, 0.1, 0.4, Ending.ANSWERED),
            outcome("b", 200, 5.0, 1.0, Ending.EXPIRED),
            outcome("b", 200, None, None, Ending.ANSWERED),
        ]
    )
    assert (found.requests, found.went) == (3, 2)
    assert [found.error.p50, found.error.p90] == pytest.approx([0.3, 2.0])
    assert [found.relative_error.p50, found.relative_error.p90] == pytest.approx([0.2, 0.3])
    assert found.late == 0.5
    assert found.fairness == 1.0


def test_fairness_is_that_of_the_tokens_that_were_served() -> None:
    one_sided = [outcome("a", 100, None, None, Ending.ANSWERED), outcome("b", 100, 1.0, None, Ending.SHED)]
    assert waits(one_sided).fairness == 0.5
    assert waits(one_sided[:1]).fairness is None


def test_classes_are_counted_each_on_its_own() -> None:
    outcomes = [outcome("", 1, None, None, Ending.ANSWERED), outcome("", 1, 3.0, 1.0, Ending.SHED)]
    outcomes[1].priority = -1
    normal, batch = by_class(outcomes, lambda one: one.ending is Ending.ANSWERED)
    assert (normal.answered, normal.goodput, normal.turned_away) == (1, 1.0, {})
    assert (batch.answered, batch.goodput, batch.turned_away) == (0, 0.0, {"shed": 1})


def test_the_workload_of_classes_has_its_shares() -> None:
    arrivals = synthetic.make("classes", 5_000, 10.0, 3).arrivals
    priorities, tenants = Counter(one.priority for one in arrivals), Counter(one.tenant for one in arrivals)
    assert [priorities[priority] / 5_000 for priority in (10, 0, -1)] == pytest.approx([0.1, 0.5, 0.4], abs=0.03)
    assert tenants["greedy"] / 5_000 == pytest.approx(0.5, abs=0.03)
    assert len(tenants) == 4
