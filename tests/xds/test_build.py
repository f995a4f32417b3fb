import pytest

from tests.xds.fleets import config, pool
from tidegate.config import Config
from xds.build import snapshot
from xds.resources import _told, resources
from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ORDER, ROUTE

A, B = "10.0.0.1:8000", "10.0.0.2:8000"


def test_a_built_snapshot_is_consistent() -> None:
    built = snapshot(config("a", "b"), [pool("a", {A: 1}), pool("b", {})])
    assert built.consistent() == ()
    assert {*built.of_type(CLUSTER)} == {
        *("a", "b", "tidegate_ext_proc", "tidegate_access_log", "tidegate_hold", "tidegate_undecided")
    }
    assert {*built.of_type(ENDPOINT)} == {"a", "b"}
    assert ({*built.of_type(LISTENER)}, {*built.of_type(ROUTE)}) == ({"inference"}, {"inference"})


def test_a_pool_without_a_view_is_found_missing() -> None:
    assert snapshot(config("a", "b"), [pool("a", {A: 1})]).consistent() == (
        "Cluster b names the ClusterLoadAssignment b, which does not exist",
    )


def test_a_change_of_the_fleet_builds_nothing_but_its_assignment() -> None:
    before = snapshot(config("a", "b"), [pool("a", {A: 1}), pool("b", {B: 1})])
    after = snapshot(config("a", "b"), [pool("a", {A: 1}), pool("b", {B: 2})])
    for type_url in ORDER:
        for name, resource in after.of_type(type_url).items():
            same = resource is before.of_type(type_url)[name]
            assert same == ((type_url, name) != (ENDPOINT, "b"))


def test_equal_configurations_are_built_to_equal_bytes() -> None:
    first, second = (_told.__wrapped__(config("a", "b"))["default"].resources for _ in range(2))
    assert [resource.version for resource in first] == [resource.version for resource in second]
    assert resources(config("a", "b")) is resources(config("a", "b"))


@pytest.mark.parametrize(
    ("limit", "changed"),
    [
        ("max_body_bytes", {(LISTENER, "inference"), (ROUTE, "inference")}),
        ("idle_timeout_seconds", {(LISTENER, "inference"), (ROUTE, "inference"), (CLUSTER, "a")}),
    ],
)
def test_another_limit_changes_what_it_is_about_alone(limit: str, changed: set[tuple[str, str]]) -> None:
    before = _versions(config("a"))
    after = _versions(config("a", limits={limit: 2000}))
    assert {key for key, version in after.items() if before[key] != version} == changed


def _versions(of: Config) -> dict[tuple[str, str], str]:
    return {(one.type_url, one.name): one.version for one in resources(of)}
