"""Checks in the configuration: what can be said of them, and what is said of those that cannot be."""

from typing import Any

import pytest

from tests.configurations import changed, faults, parsed
from tidegate.config_checks import DEFAULTS, Check


def test_a_check_that_says_nothing_goes_by_its_own_times() -> None:
    config = parsed(changed("pools.1.checks", [{"name": name} for name in DEFAULTS]))
    for check in config.pools[1].checks:
        assert (check.interval, check.timeout, check.falls, check.rises) == DEFAULTS[check.name]
    assert [check.name for check in parsed(changed("pools.0.checks", [])).pools[1].checks] == ["progress"]


def test_one_that_does_goes_by_those() -> None:
    check = Check(name="http", interval_seconds=1.5, timeout_seconds=0.5, fall=5, rise=4)
    assert (check.interval, check.timeout, check.falls, check.rises) == (1.5, 0.5, 5, 4)
    assert check.valid_seconds == 5.0


@pytest.mark.parametrize(
    ("checks", "said"),
    [
        ([{"name": "icmp"}], "pools[0].checks[0].name: expected "),
        ([{"name": "tcp"}, {"name": "tcp"}], "pools[0].checks[1].name: tcp is given already; expected each once"),
        ([{"name": "tcp", "path": "/x"}], "pools[0].checks[0].path: expected none with tcp; http and model_loaded"),
        ([{"name": "http", "model": "m"}], "pools[0].checks[0].model: expected none with http"),
        ([{"name": "progress", "status": 200}], "pools[0].checks[0].status: expected none with progress; http"),
        ([{"name": "http", "path": "health"}], "pools[0].checks[0].path: expected a path, such as /health"),
        ([{"name": "http", "path": "/a b"}], "pools[0].checks[0].path: expected a path, such as /health"),
        ([{"name": "http", "fall": 0}], "pools[0].checks[0].fall: expected at least 1, not 0"),
        ([{"name": "http", "interval_seconds": 0}], "pools[0].checks[0].interval_seconds: expected at least 0.05"),
    ],
)
def test_a_check_that_cannot_be_is_one_line(checks: list[dict[str, Any]], said: str) -> None:
    (line,) = faults(changed("pools.0.checks", checks))
    assert line.startswith(said)
