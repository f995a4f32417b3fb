"""Synthetic workloads, their scaling and splitting, and the fleet's notation."""

from itertools import pairwise

import pytest

from tidegate.simulator.profiles import BLOCK_SIZE
from tidegate.simulator.virtual import synthetic
from tidegate.simulator.virtual.conditions import Conditions, Fault, FaultKind
from tidegate.simulator.virtual.fleet import FleetSpec
from tidegate.simulator.virtual.workload import Arrival, Workload


@pytest.mark.parametrize("name", synthetic.names())
def test_a_synthetic_workload_is_in_order_of_its_rate_and_the_same_for_the_same_seed(name: str) -> None:
    workload = synthetic.make(name, 2_000, 10.0, seed=1)
    assert len(workload.arrivals) == 2_000
    assert workload.arrivals[0].at == 0.0
    assert all(one.at <= other.at for one, other in pairwise(workload.arrivals))
    assert workload.rate == pytest.approx(10.0)
    assert workload == synthetic.make(name, 2_000, 10.0, seed=1)
    assert workload != synthetic.make(name, 2_000, 10.0, seed=2)


def test_bursts_come_within_moments() -> None:
    arrivals = synthetic.make("bursts", 2_000, 10.0, seed=1).arrivals
    close = sum(other.at - one.at < 0.05 for one, other in pairwise(arrivals))
    assert close > 0.8 * len(arrivals)


def test_a_long_tail_has_a_few_prompts_with_most_of_the_tokens() -> None:
    arrivals = synthetic.make("long-tail", 5_000, 10.0, seed=1).arrivals
    long = [one.prompt_tokens for one in arrivals if one.prompt_tokens >= 8_000]
    assert 0.015 < len(long) / len(arrivals) < 0.05
    assert sum(long) > 0.4 * sum(one.prompt_tokens for one in arrivals)
    assert max(long) <= 100_000


def test_prefixes_are_shared_and_questions_are_not() -> None:
    arrivals = synthetic.make("shared-prefixes", 500, 10.0, seed=1).arrivals
    assert len({one.blocks[:60] for one in arrivals}) <= 40
    assert len({one.blocks[-1] for one in arrivals}) > 450
    assert all(len(one.prefix) == one.prompt_tokens // BLOCK_SIZE for one in arrivals)


def test_a_turn_holds_the_turns_before_it() -> None:
    arrivals = synthetic.make("sessions", 500, 10.0, seed=1).arrivals
    by_session: dict[str, list[Arrival]] = {}
    for one in arrivals:
        by_session.setdefault(one.session, []).append(one)
    turns = [pair for session in by_session.values() for pair in pairwise(session)]
    assert len(turns) > 200
    assert all(after.prefix[: len(before.blocks)] == before.blocks for before, after in turns)
    assert all(after.prompt_tokens > before.prompt_tokens + before.output_tokens for before, after in turns)


def test_a_workload_without_requests_or_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="positive rate"):
        synthetic.make("poisson", 10, 0.0, seed=0)
    with pytest.raises(ValueError, match="no requests"):
        Workload("none", [])


def test_time_is_stretched_evenly() -> None:
    workload = Workload("w", [Arrival(2.0, 1, 1), Arrival(3.0, 1, 1), Arrival(6.0, 1, 1)])
    assert workload.rate == 0.5
    assert [one.at for one in workload.at_rate(1.0).arrivals] == [0.0, 0.5, 2.0]
    with pytest.raises(ValueError, match="positive"):
        workload.at_rate(0.0)


def test_all_at_once_stays_all_at_once() -> None:
    assert [one.at for one in Workload("w", [Arrival(1.0, 1, 1)] * 3).at_rate(5.0).arrivals] == [0.0, 0.0, 0.0]


def test_halves_by_time_share_no_request() -> None:
    workload = Workload("w", [Arrival(at, at + 1, 1) for at in range(9)])
    train, test = workload.part(0, 0.5), workload.part(0.5, 1)
    assert [one.prompt_tokens for one in (*train.arrivals, *test.arrivals)] == list(range(1, 10))
    assert test.arrivals[0].at == 0.0


def test_a_fleet_is_written_as_it_is_read() -> None:
    fleet = FleetSpec.parse("h100:2, rtx4090")
    assert str(fleet) == "h100:2,rtx4090:1"
    assert [one.address for one in fleet.endpoints()] == ["10.0.0.0:8000", "10.0.0.1:8000", "10.0.0.2:8000"]
    assert [one.gpu for one in fleet.endpoints()] == ["h100", "h100", "rtx4090"]


@pytest.mark.parametrize(("count", "expected"), [(1, "h100:1"), (2, "h100:1,a100:1"), (8, "h100:4,a100:4")])
def test_a_resized_fleet_keeps_its_shares(count: int, expected: str) -> None:
    assert str(FleetSpec.parse("h100:2,a100:2").resized(count)) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [("h200:1", "expected one of"), ("h100:0", "1 or more"), ("h100:x", "PROFILE:COUNT"), ("", "no profile")],
)
def test_what_is_no_fleet_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FleetSpec.parse(text)
    with pytest.raises(ValueError, match="needs an endpoint"):
        FleetSpec(())


def test_a_fault_is_read() -> None:
    assert Fault.parse("die:3@60+30") == Fault(FaultKind.DIE, 3, 60.0, 30.0)


@pytest.mark.parametrize(
    "text", ["", "die", "burn:1@2+3", "die:x@2+3", "die:1@2", "die:-1@2+3", "die:1@-2+3", "die:1@2+nan"]
)
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected KIND:ENDPOINT@SECOND"):
        Fault.parse(text)


def test_no_news_comes_before_it_happens() -> None:
    with pytest.raises(ValueError, match="no delay negative"):
        Conditions(end_delay=-0.1)
