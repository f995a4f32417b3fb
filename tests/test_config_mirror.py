"""Mirrors in the configuration file."""

from typing import Any

import pytest

from tests.configurations import faults, parsed


def config(**mirrors: Any) -> dict[str, Any]:
    return {
        "pools": [
            {
                "name": name,
                "engine": "none",
                "models": [] if name == "shadow" else [f"only-{name}"],
                "endpoints": [{"address": f"127.0.0.1:{at}"}],
                "mirror": mirrors.get(name),
            }
            for at, name in enumerate(("a", "b", "shadow"), 1)
        ]
    }


def test_a_pool_to_which_nothing_but_a_mirror_leads_needs_no_models() -> None:
    pools = parsed(config(a={"pool": "shadow", "percent": 10})).pools
    assert pools[0].mirror is not None
    assert (pools[0].mirror.pool, pools[0].mirror.percent) == ("shadow", 10)
    assert any("models" in line for line in faults(config()))


@pytest.mark.parametrize(
    ("mirrors", "fault"),
    [
        ({"a": {"pool": "x"}}, "pools[0].mirror.pool: expected another pool (b, shadow), not 'x'"),
        ({"a": {"pool": "a"}}, "pools[0].mirror.pool: expected another pool (b, shadow), not 'a'"),
        (
            {"a": {"pool": "b"}, "b": {"pool": "shadow"}},
            "pools[0].mirror.pool: expected a pool without a mirror of its own; 'b' has one",
        ),
        ({"a": {"pool": "b", "percent": 0}}, "pools[0].mirror.percent: expected more than 0"),
        ({"a": {"pool": "b", "percent": 101}}, "pools[0].mirror.percent: expected at most 100"),
    ],
)
def test_what_makes_no_sense_is_said(mirrors: dict[str, Any], fault: str) -> None:
    found = faults(config(**mirrors))
    assert any(fault in line for line in found), found
