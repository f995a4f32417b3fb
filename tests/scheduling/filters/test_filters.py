"""Filters in a row: what each leaves out, which are passed over, and which are not."""

import pytest

from tests.scheduling.ask import A, B, C, D, ask, candidate
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.health import Reachability
from tidegate.scheduling import filters
from tidegate.scheduling.filters import Step, chain, needed, screen


def test_the_filters_are_those_of_the_files() -> None:
    expected = ("adapter", "breaker", "fits", "healthy", "model", "reachable", "role", "saturation", "vram")
    assert filters.names() == expected
    assert {found.name for found in map(filters.find, filters.names()) if found.hard} == {"healthy", "model", "role"}
    assert {found.name for found in map(filters.find, filters.names()) if found.heeds_health} == {"breaker", "healthy"}


@pytest.mark.parametrize("name", ["", "best", "__init__", "../pickers"])
def test_a_filter_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(KeyError):
        filters.find(name)


def test_the_hard_ones_come_first_and_cannot_be_left_out() -> None:
    always = ["model", "role", "healthy"]
    assert [found.name for found in chain(())] == always
    assert [found.name for found in chain(("fits", "model", "reachable"))] == [*always, "fits", "reachable"]


def test_each_says_whom_it_left_out() -> None:
    steps: list[Step] = []
    screened = screen(
        ask(),
        [candidate(A, models=("n",)), candidate(B, reachability=Reachability.UNREACHABLE), candidate(C)],
        chain(("reachable",)),
        steps,
    )
    assert [endpoint.address for endpoint in screened.kept] == [C]
    assert not screened.doubtful
    assert [step.filter for step in steps] == ["model", "role", "healthy", "reachable"]
    assert [step for step in steps if step.removed] == [Step("model", (A,), False), Step("reachable", (B,), False)]


def test_one_that_would_leave_nobody_is_passed_over_and_the_next_goes_on() -> None:
    steps: list[Step] = []
    dead = Reachability.UNREACHABLE
    full = candidate(A, reachability=dead, kv_usage=1.0, kv_capacity=1000.0)
    screened = screen(ask(), [full, candidate(B, reachability=dead)], chain(("reachable", "fits")), steps)
    assert [endpoint.address for endpoint in screened.kept] == [B]
    assert screened.doubtful
    assert steps[3:] == [Step("reachable", (A, B), True), Step("fits", (A,), False)]


def test_a_hard_one_that_leaves_nobody_ends_it() -> None:
    screened = screen(ask(), [candidate(D, role="prefill")], chain(("reachable",)))
    assert (screened.kept, screened.doubtful) == ((), True)


def test_a_filter_that_what_is_declared_makes_idle_is_not_asked() -> None:
    def of(*members: EndpointSpec, well: bool = True) -> list[str]:
        pool = PoolSpec("default", "vllm", ("*",), members)
        return [found.name for found in needed(pool, ("reachable",), well=well)]

    assert of(EndpointSpec(A), EndpointSpec(B, role="decode")) == ["reachable"]
    assert of(EndpointSpec(A), EndpointSpec(B, role="prefill")) == ["role", "reachable"]
    assert of(EndpointSpec(A, models=("m",)), EndpointSpec(B)) == ["model", "reachable"]
    assert of(EndpointSpec(A), well=False) == ["healthy", "reachable"]
