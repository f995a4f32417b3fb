"""How much a fleet can do, and how large it must be."""

import pytest

from tidegate.simulator.virtual import capacity, synthetic
from tidegate.simulator.virtual.conditions import Conditions, Fault, FaultKind
from tidegate.simulator.virtual.fleet import FleetSpec
from tidegate.simulator.virtual.report import SLO, simulate
from tidegate.simulator.virtual.workload import Arrival, Workload

POISSON = synthetic.make("poisson", 600, 10.0, seed=1)


def test_the_capacity_of_a_fleet_is_that_of_its_engines_together() -> None:
    one, four = (capacity.requests_per_second(FleetSpec.parse(text), POISSON) for text in ("h100:1", "h100:4"))
    assert 8 < one < 20
    assert four == pytest.approx(4 * one, rel=0.15)


def test_a_faster_gpu_has_more_capacity() -> None:
    rates = [capacity.requests_per_second(FleetSpec.parse(name), POISSON) for name in ("rtx4090", "a100", "h100")]
    assert rates == sorted(rates)
    assert rates[2] > 3 * rates[0]


def test_below_its_capacity_a_fleet_keeps_up_and_above_it_does_not() -> None:
    fleet = FleetSpec.parse("h100:2")
    below, above = (
        simulate(fleet, capacity.at_utilisation(fleet, POISSON, share), "least_tokens") for share in (0.6, 2.5)
    )
    assert (below.ttft.p99 or 9) < 1.0
    assert (above.ttft.p99 or 0) > 3 * (below.ttft.p99 or 9)


def test_hits_add_to_the_capacity() -> None:
    same = Workload("same", [Arrival(at, 2_048, 20, (1, 2, 3, 4), 512) for at in range(400)])
    other = Workload("other", [Arrival(at, 2_048, 20, (at, -at, 3, 4), 512) for at in range(1, 401)])
    fleet = FleetSpec.parse("h100:1")
    assert capacity.requests_per_second(fleet, same) > 2 * capacity.requests_per_second(fleet, other)


def test_a_workload_that_no_engine_can_hold_is_refused() -> None:
    huge = Workload("huge", [Arrival(0.0, 60_000, 10), Arrival(1.0, 60_000, 10)])
    with pytest.raises(ValueError, match="hold any request of huge"):
        capacity.at_utilisation(FleetSpec.parse("rtx4090:4"), huge, 0.5)


def test_the_smallest_fleet_that_meets_the_slo_is_found() -> None:
    fleet, slo = FleetSpec.parse("a100:1"), SLO(1.0, 0.06)
    tried: list[int] = []
    conditions = Conditions(faults=(Fault(FaultKind.SLOW, 50, 1.0, 1.0),))
    found = capacity.endpoints_needed(
        fleet, POISSON, "least_tokens", slo=slo, conditions=conditions, progress=lambda count, _: tried.append(count)
    )
    assert found is not None
    count, report = found
    assert report.fleet == f"a100:{count}"
    assert report.goodput >= 0.99
    assert count > 1
    assert simulate(fleet.resized(count - 1), POISSON, "least_tokens", slo=slo).goodput < 0.99
    assert len(tried) == len(set(tried))


def test_what_no_fleet_can_do_is_said_so() -> None:
    impossible = SLO(1e-6, 1e-6)
    fleet = FleetSpec.parse("h100:1")
    assert capacity.endpoints_needed(fleet, POISSON, "random", slo=impossible, most=4) is None
