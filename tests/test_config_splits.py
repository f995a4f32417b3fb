"""Splits and rollouts in the configuration file."""

from typing import Any

import pytest

from tests.configurations import EVERY_KEY, EVERY_KEY_OF_A_SPLIT, faults, parsed
from tidegate.config_routes import engine_paths, header_names, models_served, renames, traffic
from tidegate.scheduling.rollout import Limits, Plan
from tidegate.scheduling.splits import Side, Split

SIDES = [{"pool": "a", "weight": 90}, {"pool": "b", "weight": 10, "rewrite_model": "new"}]


def config(**route: Any) -> dict[str, Any]:
    return {
        "pools": [
            {"name": name, "engine": "none", "models": [f"only-{name}"], "endpoints": [{"address": f"127.0.0.1:{at}"}]}
            for at, name in enumerate("abc", 1)
        ],
        "routes": [{"model": "m", **route}],
    }


def test_a_split_leads_to_several_pools_of_which_the_largest_stands_for_it() -> None:
    data = config(split=SIDES, sticky={"header": "x-user"}, rewrite_path="/generate")
    data["pools"][1]["models"] = []
    (route,) = parsed(data).routes
    (found,) = traffic([route])
    assert (found.pool, found.split) == ("a", Split((Side("a", 90), Side("b", 10, "new")), ":x-user"))
    assert route.pools == ("a", "b")
    assert header_names([route]) == ("x-user",)
    assert models_served([route]) == ("m", "new")
    assert renames([route])
    assert [engine_paths([route], pool) for pool in "abc"] == [("/generate",), ("/generate",), ()]


@pytest.mark.parametrize("sticky", ["session", "tenant"])
def test_requests_may_stay_by_session_or_by_tenant(sticky: str) -> None:
    data = config(split=[{"pool": "a"}, {"pool": "b"}], sticky={"by": sticky})
    data["tenants"] = [{"name": "alice"}]
    assert not renames(parsed(data).routes)
    assert traffic(parsed(data).routes)[0].split == Split((Side("a", 1), Side("b", 1)), sticky)


def test_nobody_stays_by_a_tenant_where_there_are_none() -> None:
    (line,) = faults(config(split=[{"pool": "a"}, {"pool": "b"}], sticky={"by": "tenant"}))
    assert line == "routes[0].sticky.by: expected session or a header, or tenants, of which there are none"


def test_a_rollout_is_a_plan_in_shares_and_seconds() -> None:
    data = {**EVERY_KEY, "envoy": {}, "envoys": {}, "routes": [EVERY_KEY_OF_A_SPLIT]}
    (route,) = parsed(data).routes
    assert route.rollout is not None
    assert route.rollout.plan == Plan((0.05, 0.5), 60, Limits(100, 0.01, 1.5, 1.5))
    assert route.rollout.canary == "rest"


@pytest.mark.parametrize(
    ("route", "fault"),
    [
        ({}, "routes[0]: expected one of pool and split"),
        ({"pool": "a", "split": SIDES}, "routes[0]: expected one of pool and split"),
        ({"split": [{"pool": "x"}]}, "routes[0].split[0].pool: expected one of a, b, c, not 'x'"),
        ({"split": [{"pool": "a"}, {"pool": "a"}]}, "routes[0].split[1].pool: expected each pool once, not 'a' again"),
        ({"split": [{"pool": "a", "weight": 0}]}, "routes[0].split: expected a weight above 0"),
        ({"split": [{"pool": "a", "weight": -1}]}, "routes[0].split[0].weight: expected"),
        ({"pool": "a", "sticky": {"by": "session"}}, "routes[0].sticky: expected a split"),
        ({"pool": "a", "rollout": {"canary": "a"}}, "routes[0].rollout: expected a split between two pools"),
        (
            {"split": [{"pool": "a"}, {"pool": "c"}], "rollout": {"canary": "b"}},
            "routes[0].rollout.canary: expected one of a, c, not 'b'",
        ),
        (
            {"split": [{"pool": "a"}, {"pool": "c"}], "rollout": {"canary": "c", "steps": [50, 10]}},
            "routes[0].rollout: expected steps that grow",
        ),
        ({"split": SIDES}, "routes[0].split[1].rewrite_model: expected a model that the pool b serves, not 'new'"),
        (
            {"split": [{"pool": "a"}, {"pool": "c", "rewrite_model": "m"}]},
            "routes[0].split[1].rewrite_model: expected another name than the client's, 'm'",
        ),
        (
            {"split": [{"pool": "a"}], "sticky": {"header": "authorization"}},
            "routes[0].sticky.header: expected a header that is no secret, not 'authorization'",
        ),
        ({"split": [{"pool": "a"}], "sticky": {}}, "routes[0].sticky: expected one of by and header"),
        (
            {"split": [{"pool": "a"}], "sticky": {"by": "user"}},
            "routes[0].sticky.by: expected one of 'session' or 'tenant'",
        ),
    ],
)
def test_what_makes_no_sense_is_said(route: dict[str, Any], fault: str) -> None:
    found = faults(config(**route))
    assert any(fault in line for line in found), found


def test_rollouts_can_be_told_apart() -> None:
    split = [{"pool": "a"}, {"pool": "b"}]
    data = config()
    data["routes"] = [
        {"name": "x", "model": "m", "split": [*map(dict, split)], "rollout": {"canary": "a"}},
        {"name": "x", "model": "n", "split": [*map(dict, split)], "rollout": {"canary": "b"}},
        {"name": "routes[3]", "model": "o", "pool": "c"},
        {"model": "p", "split": [{"pool": "c"}, {"pool": "a"}], "rollout": {"canary": "c"}},
    ]
    assert faults(data) == [
        "routes[0].name: expected one that no other route has, for its rollout, not 'x'",
        "routes[1].name: expected one that no other route has, for its rollout, not 'x'",
        "routes[1].rollout: expected pools that are in no other; 'a' is in routes[0].rollout",
        "routes[1].rollout: expected pools that are in no other; 'b' is in routes[0].rollout",
        "routes[3].name: expected one that no other route has, for its rollout, not 'routes[3]'",
        "routes[3].rollout: expected pools that are in no other; 'a' is in routes[0].rollout",
    ]
