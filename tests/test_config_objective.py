"""What may be said of a pool's objective."""

from typing import Any

import pytest

from tests.configurations import changed, faults, parsed
from tidegate.scheduling.saturation import WAITING, Objective

POOL = {"name": "p", "endpoints": [{"address": "10.0.0.1:8000"}]}


def test_without_an_objective_there_is_no_time_to_keep() -> None:
    assert parsed({"pools": [POOL]}).pools[0].objective.judged() == Objective(None, WAITING)


def test_an_objective_is_taken_as_it_is_written() -> None:
    pool = {**POOL, "objective": {"ttft_seconds": 1.5, "waiting": 2}}
    assert parsed({"pools": [pool]}).pools[0].objective.judged() == Objective(1.5, 2.0)


@pytest.mark.parametrize(
    ("key", "value"), [("ttft_seconds", 0), ("ttft_seconds", 3601), ("waiting", 0), ("waiting", "x")]
)
def test_an_objective_that_nothing_can_be_judged_by_is_refused(key: str, value: Any) -> None:
    (line,) = faults(changed(f"pools.0.objective.{key}", value))
    assert line.startswith(f"pools[0].objective.{key}: expected ")
