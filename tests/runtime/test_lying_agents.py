"""Agents that lie, repeat themselves or fall silent, and what the fleet makes of it: under virtual time."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.health.reports import REPORTS, gpu, report
from tests.runtime.agents_plane import Plane, failed
from tidegate.fleet.health import HealthStatus
from tidegate.health.reported import Condition, Report

ADDRESSES = [f"10.0.0.{number}:8000" for number in range(8)]


@pytest.fixture
def plane() -> Plane:
    return fleet()


def fleet() -> Plane:
    """Return eight endpoints, each on a node of its own."""
    return Plane(*({"address": address, "node": f"gpu-{at}"} for at, address in enumerate(ADDRESSES)))


def say(plane: Plane, lying: int, sequence: int) -> None:
    """Have the first so many nodes say that their GPU is lost, and the others that all is well."""
    for at in range(len(ADDRESSES)):
        word = failed(f"gpu-{at}", sequence) if at < lying else report(gpu(0), node=f"gpu-{at}", sequence=sequence)
        plane.hear(word)


def ejected(plane: Plane) -> list[int]:
    return [at for at, address in enumerate(ADDRESSES) if plane.seen(address).ejected]


def test_one_lost_gpu_costs_its_endpoint_all_requests_at_once(plane: Plane) -> None:
    say(plane, 1, 1)
    assert ejected(plane) == [0]
    assert plane.seen(ADDRESSES[0]).health is HealthStatus.EJECTED


@pytest.mark.parametrize("lying", [4, 8])
def test_half_of_the_agents_or_all_of_them_lying_eject_nobody(plane: Plane, lying: int) -> None:
    for sequence in range(1, 31):
        say(plane, lying, sequence)
        plane.wait(2.0)
        # Agents come one after the other: before it is seen how many they are, a few may have been believed.
        assert len(ejected(plane)) <= 2
    assert ejected(plane) == []


@pytest.mark.parametrize("silent", [1, 8])
def test_agents_that_fall_silent_eject_nobody_and_at_most_cost_their_endpoints_a_share(
    plane: Plane, silent: int
) -> None:
    say(plane, 0, 1)
    for sequence in range(2, 62):
        plane.wait(2.0)
        for at in range(silent, 8):
            plane.hear(report(gpu(0), node=f"gpu-{at}", sequence=sequence))
    assert ejected(plane) == []
    shares = [plane.seen(address).share for address in ADDRESSES]
    assert shares == ([0.5, *[1.0] * 7] if silent == 1 else [1.0] * 8), "less than the others, where there are others"


def test_old_reports_that_are_sent_again_change_nothing(plane: Plane) -> None:
    plane.hear(failed("gpu-0", 1))
    plane.hear(report(gpu(0), node="gpu-0", sequence=2))
    for _ in range(10):
        plane.wait(2.0)
        plane.hear(failed("gpu-0", 1))
    plane.hear(report(gpu(0), node="gpu-0", sequence=3))
    assert ejected(plane) == []


def test_a_gpu_that_recovered_gets_its_share_little_by_little(plane: Plane) -> None:
    say(plane, 1, 1)
    shares = []
    for sequence in range(2, 40):
        plane.wait(2.0)
        say(plane, 0, sequence)
        shares.append(0.0 if ejected(plane) else plane.seen(ADDRESSES[0]).share)
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert any(0 < share < 1 for share in shares)
    assert shares[-1] == 1.0


def test_an_agent_that_changes_its_mind_with_each_report_is_held_longer_each_time(plane: Plane) -> None:
    inside = []
    for sequence in range(1, 301):
        lost = gpu(0, Condition.FAILED, "gpu_lost") if sequence % 4 == 1 else gpu(0)
        plane.hear(report(lost, node="gpu-0", sequence=sequence))
        inside.append(not ejected(plane))
        plane.wait(2.0)
    changes = sum(one is not other for one, other in pairwise(inside))
    assert changes <= 12, "in ten minutes"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(REPORTS, st.integers(0, 7), st.floats(0.0, 5.0)), max_size=15))
def test_whatever_agents_say_somebody_is_left_to_serve(said: list[tuple[Report, int, float]]) -> None:
    plane = fleet()
    for sequence, (word, node, pause) in enumerate(said, 1):
        plane.hear(word._replace(node=f"gpu-{node}", sequence=sequence))
        plane.wait(pause)
        assert len(ejected(plane)) <= len(ADDRESSES) // 2
    assert plane.page()
