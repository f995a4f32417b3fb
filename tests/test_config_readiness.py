"""What may be said of how endpoints that join show that they are ready."""

from typing import Any

import pytest

from tests.configurations import faults, parsed
from tidegate.discovery.static import declared

POOL = {"name": "p", "models": ["p"], "endpoints": [{"address": "10.0.0.1:8000"}]}


def rules(**readiness: Any) -> tuple[str, float]:
    pool = {**POOL, "readiness": readiness, "checks": [{"name": "http"}]}
    (declaration,) = declared(parsed({"pools": [pool]})).pools
    return declaration.health.ready_by, declaration.health.ready_seconds


def test_without_a_word_any_sign_is_waited_for_and_not_for_ever() -> None:
    assert rules() == ("any", 30.0)


def test_a_check_of_the_pool_can_be_the_sign_and_none_is_needed_where_that_is_said() -> None:
    assert rules(check="http", timeout_seconds=600) == ("http", 600.0)
    assert rules(check="metrics") == ("metrics", 30.0)
    assert rules(check="none") == ("", 30.0)


def test_a_check_that_the_pool_does_not_make_is_no_sign() -> None:
    (line,) = faults({"pools": [{**POOL, "readiness": {"check": "http"}}]})
    assert line.endswith("pools[0].readiness.check: expected any, metrics, none or one of the pool's checks")


@pytest.mark.parametrize(("key", "value"), [("check", "progress"), ("check", 1), ("timeout_seconds", -1)])
def test_what_cannot_be_waited_for_is_refused(key: str, value: Any) -> None:
    (line,) = faults({"pools": [{**POOL, "readiness": {key: value}}]})
    assert f"pools[0].readiness.{key}" in line
