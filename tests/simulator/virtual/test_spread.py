"""Equal requests on equal engines: every policy spreads them, unless it is meant to keep them together."""

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from tidegate.fleet.endpoint import EndpointSpec
from tidegate.scheduling import pickers
from tidegate.simulator.profiles import PROFILES
from tidegate.simulator.virtual.conditions import Conditions, Fault, FaultKind
from tidegate.simulator.virtual.fleet import FleetSpec, address
from tidegate.simulator.virtual.simulation import Simulation
from tidegate.simulator.virtual.workload import Arrival, Workload

LOW, MEDIUM, HIGH = 1.0, 20.0, 80.0
"""Requests per second: less than one at a time; some beside one another; dozens in each batch."""

REQUESTS = 480
CHANCE = 0.3
"""How far from an equal share of 120 chance alone takes the one of four that it takes furthest: 3.5 deviations."""


@dataclass(frozen=True, slots=True)
class Undeclared(FleetSpec):
    """A fleet of which nobody says what GPUs it has."""

    def endpoints(self) -> tuple[EndpointSpec, ...]:
        return tuple(EndpointSpec(address(at)) for at in range(len(self.profiles)))


def equal(count: int, *, declared: bool = False) -> FleetSpec:
    kind = FleetSpec if declared else Undeclared
    return kind((PROFILES["h100"],) * count)


def requests(rate: float, seed: int, count: int = REQUESTS, *, alike: bool = False) -> Workload:
    """Requests of one size at random times; with ``alike`` all have the same prompt."""
    rng, now, arrivals = random.Random(seed), 0.0, list[Arrival]()
    for _ in range(count):
        now += rng.expovariate(rate)
        blocks, size = (tuple(range(18)), 16) if alike else ((), 0)
        arrivals.append(Arrival(now, 300, 160, blocks, size))
    return Workload("equal", arrivals)


def shares(
    policy: str, workload: Workload, seed: int, fleet: FleetSpec | None = None, slow: int | None = None
) -> list[float]:
    """Return what each engine got, as a multiple of an equal share."""
    fleet = equal(4) if fleet is None else fleet
    faults = () if slow is None else (Fault(FaultKind.SLOW, slow, 0.0, 1e9),)
    run = Simulation(fleet, workload, policy, seed, Conditions(faults=faults)).run()
    served = Counter(outcome.endpoint for outcome in run.outcomes)
    count = len(fleet.profiles)
    return [served[address(at)] * count / len(workload.arrivals) for at in range(count)]


def furthest(multiples: list[float]) -> float:
    return max(abs(one - 1.0) for one in multiples)


BY_REPORTS = {"weighted_scores"}
"""Goes by what engines reported last and by nothing sent since, as the Go endpoint picker: between two reports all go
to the one that looked best. At 60 requests a second and a report a second that was 1.55 times an equal share."""


@pytest.mark.parametrize("rate", [LOW, MEDIUM, HIGH])
@pytest.mark.parametrize("policy", [name for name in pickers.names() if name not in BY_REPORTS])
def test_every_policy_spreads_equal_requests_over_equal_engines(policy: str, rate: float) -> None:
    assert furthest(shares(policy, requests(rate, seed=5), seed=5)) <= CHANCE


@pytest.mark.parametrize("policy", sorted(BY_REPORTS))
def test_a_policy_that_goes_by_reports_alone_still_leaves_nobody_out(policy: str) -> None:
    for rate in (LOW, MEDIUM, HIGH):
        assert furthest(shares(policy, requests(rate, seed=5), seed=5)) <= 0.75


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("rate", [LOW, MEDIUM, HIGH])
def test_predicted_latency_spreads_them_evenly_whether_the_prior_fits_or_not(rate: float, *, declared: bool) -> None:
    for seed in range(1, 6):
        assert furthest(shares("predicted_latency", requests(rate, seed), seed, equal(4, declared=declared))) <= 0.15


@pytest.mark.parametrize("rate", [LOW, MEDIUM])
def test_a_slow_one_of_four_gets_less_and_the_others_share_its_part_evenly(rate: float) -> None:
    for seed in range(1, 4):
        slow, *others = shares("predicted_latency", requests(rate, seed), seed, slow=0)
        assert slow < 0.5
        assert furthest([one * 3 / 4 / (1 - slow / 4) for one in others]) <= 0.15


def test_prompts_that_begin_alike_stay_together_until_that_costs_more_than_it_saves() -> None:
    few = sorted(shares("predicted_latency", requests(LOW, 1, alike=True), 1))
    many = shares("predicted_latency", requests(HIGH, 1, alike=True), 1)
    assert few[-1] > 2.0
    assert furthest(many) <= 0.15


@pytest.mark.parametrize("rate", [12.0, 40.0])
def test_one_of_eight_that_becomes_slow_is_left_after_a_few_requests(rate: float) -> None:
    struck = 20.0
    workload = requests(rate, seed=3, count=round(rate * 50))
    conditions = Conditions(faults=(Fault(FaultKind.SLOW, 0, struck, 1e9),))
    run = Simulation(equal(8), workload, "predicted_latency", 3, conditions).run()
    there = [one.arrived - struck for one in run.outcomes if one.endpoint == address(0) and one.arrived > struck]
    assert 0 < len(there) <= 12
    assert max(there) < 20.0
