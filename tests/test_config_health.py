"""What may be said of endpoints' health."""

from dataclasses import replace
from typing import Any

import pytest

from tests.configurations import changed, faults, parsed
from tidegate.discovery.static import declared
from tidegate.fleet.health import RULES

POOL = {"name": "p", "models": ["p"], "endpoints": [{"address": "10.0.0.1:8000"}]}
OTHER = {"name": "q", "models": ["q"], "endpoints": [{"address": "10.0.0.2:8000"}]}


def test_without_a_word_on_health_the_fleets_own_rules_hold() -> None:
    (pool,) = declared(parsed({"pools": [POOL]})).pools
    assert pool.health == replace(RULES, ready_by="any")
    assert not pool.endpoints[0].drain


def test_a_pool_goes_by_its_own_section_or_by_that_for_all() -> None:
    file = {"health": {"hold_seconds": 7}, "pools": [{**POOL, "health": {"panic": 0.8}}, OTHER]}
    one, other = declared(parsed(file)).pools
    assert (one.health.hold_seconds, one.health.panic) == (RULES.hold_seconds, 0.8)
    assert (other.health.hold_seconds, other.health.panic) == (7.0, RULES.panic)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hold_seconds", -1),
        ("calm_seconds", "x"),
        ("forgive_seconds", 0),
        ("least_share", 0),
        ("degraded_share", 1.1),
        ("max_ejected", 50),
        ("panic", -0.1),
    ],
)
def test_what_nothing_can_be_judged_by_is_refused(key: str, value: Any) -> None:
    (line,) = faults(changed(f"health.{key}", value))
    assert line.startswith(f"health.{key}: expected ")


def test_a_hold_does_not_begin_above_the_most_that_it_grows_to() -> None:
    (line,) = faults(changed("health.max_hold_seconds", 1))
    assert line == "health: expected max_hold_seconds of at least hold_seconds"


@pytest.mark.parametrize("where", ["health", "pools.0.health"])
def test_what_would_be_ejected_gets_no_more_than_what_is_merely_degraded(where: str) -> None:
    (line,) = faults(changed(where, {"least_share": 0.3, "degraded_share": 0.2}))
    assert line == f"{where.replace('.0', '[0]')}: expected degraded_share of at least least_share"
