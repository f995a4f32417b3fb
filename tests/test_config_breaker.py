"""Breakers in the configuration: what a pool that says nothing goes by, and what it may say."""

from typing import Any

import pytest

from tests.configurations import changed, faults, parsed
from tidegate.discovery.static import declared
from tidegate.fleet.breaker import BreakerRules


def test_a_pool_that_says_nothing_has_breakers() -> None:
    assert declared(parsed(changed("pools.0.retries", 1))).pools[1].breaker == BreakerRules()


def test_what_is_said_is_what_the_fleet_goes_by_and_it_can_be_turned_off() -> None:
    assert declared(parsed(changed("pools.0.retries", 1))).pools[0].breaker is None
    on = parsed(changed("pools.0.breaker.enabled", value=True))
    assert declared(on).pools[0].breaker == BreakerRules(3.0, 0.25, 50, 10.0, 1.0, 60.0, 1)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("consecutive", 0, "expected at least 1, not 0"),
        ("share", 0, "expected at least 0.01, not 0"),
        ("share", 1.5, "expected at most 1, not 1.5"),
        ("open_seconds", "5s", "expected a number"),
        ("enabled", "yes", "boolean"),
    ],
)
def test_a_bad_value_is_one_line(key: str, value: Any, said: str) -> None:
    (line,) = faults(changed(f"pools.0.breaker.{key}", value))
    assert line.startswith(f"pools[0].breaker.{key}: ")
    assert said in line


def test_a_breaker_does_not_begin_above_the_most_that_it_grows_to() -> None:
    (line,) = faults(changed("pools.0.breaker.open_seconds", 61))
    assert line == "pools[0].breaker: expected max_open_seconds of at least open_seconds"
