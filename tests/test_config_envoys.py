"""Groups of Envoys in the configuration file."""

from typing import Any

import pytest

from tests.configurations import faults, parsed
from tidegate.config_envoys import Envoys, Node


def config(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    pools = [
        {"name": name, "engine": "none", "models": [name], "endpoints": [{"address": f"127.0.0.1:{at}"}]}
        for at, name in enumerate(("a", "b", "c"), 1)
    ]
    others = more.pop("others", "default")
    return {"pools": pools, "envoys": {"groups": list(groups), "others": others}, **more}


EDGE = {"name": "edge", "match": {"id": "edge-*"}, "listener": {"address": "0.0.0.0", "port": 443}}
SIDECAR = {"name": "sidecar", "match": {"cluster": "apps", "metadata": {"role": "sidecar"}}, "pools": ["a"]}


def envoys(*groups: dict[str, Any], **more: Any) -> Envoys:
    return parsed(config(*groups, **more)).envoys


@pytest.mark.parametrize(
    ("node", "group"),
    [
        (Node("edge-7", "apps", {"role": "sidecar"}), "edge"),
        (Node("edge-"), "edge"),
        (Node("edge"), "default"),
        (Node("x", "apps", {"role": "sidecar", "zone": "1"}), "sidecar"),
        (Node("x", "apps", {"role": "edge"}), "default"),
        (Node("x", "apps"), "default"),
        (Node("x", "apps-2", {"role": "sidecar"}), "default"),
        (Node(""), "default"),
    ],
)
def test_the_first_group_that_fits_takes_an_envoy(node: Node, group: str) -> None:
    assert envoys(EDGE, SIDECAR).group_of(node) == group


def test_an_envoy_in_no_group_is_refused_where_that_is_wanted_and_never_otherwise() -> None:
    assert envoys(EDGE, others="refuse").group_of(Node("envoy")) is None
    assert envoys(EDGE).group_of(Node("envoy")) == "default"
    assert envoys().group_of(Node("envoy")) == "default"


def test_a_group_without_a_match_takes_whoever_is_left() -> None:
    assert envoys(EDGE, {"name": "rest"}, others="refuse").group_of(Node("envoy")) == "rest"


def test_an_envoy_can_be_told_what_to_say_of_itself() -> None:
    both = envoys(EDGE, SIDECAR, others="refuse")
    assert both.node("edge") == Node("edge-envoy", "tidegate", {})
    assert both.node("edge", "edge-7").id == "edge-7"
    assert both.node("sidecar", "pod-1") == Node("pod-1", "apps", {"role": "sidecar"})
    for group, node_id, said in (
        ("edge", "other", "is refused; expected one of edge, sidecar"),
        (None, "", "is refused; expected one of edge, sidecar"),
        ("sidecar", "edge-1", "is of the group edge, not of sidecar"),
        ("x", "", "expected one of edge, sidecar, default, not 'x'"),
    ):
        with pytest.raises(ValueError, match=said):
            both.node(group, node_id)
    assert envoys(EDGE).node("default") == Node("envoy", "tidegate", {})


def test_while_pools_change_a_group_keeps_those_it_had() -> None:
    before = envoys({**SIDECAR, "pools": ["a", "b"]}, EDGE)
    after = envoys({**SIDECAR, "pools": ["c"]}, EDGE, {"name": "new", "pools": ["a"]})
    assert [group.pools for group in after.widened(before).groups] == [("c", "a", "b"), (), ("a",)]
    assert [group.pools for group in envoys(SIDECAR).widened(envoys({**SIDECAR, "pools": []})).groups] == [()]


def test_the_envoy_that_is_started_here_listens_where_its_group_does() -> None:
    assert parsed(config(EDGE)).listener_here[1].port == 8080
    here = parsed(config(EDGE, envoy={"group": "edge"}))
    assert (here.listener_here[0], here.listener_here[1].port) == ("envoys.groups[0].listener", 443)
    assert [one.port for one in here.listeners] == [8080, 443]
    (said,) = faults(config(EDGE, envoy={"group": "edge", "admin_port": 443}))
    assert "taken already by envoys.groups[0].listener.port" in said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            config(EDGE, {**SIDECAR, "name": "edge"}),
            "envoys.groups[1].name: 'edge' is given already at envoys.groups[0]",
        ),
        (config({**EDGE, "name": "default"}), "envoys.groups[0].name: 'default' stands for those in no group"),
        (config({**SIDECAR, "pools": ["a", "x"]}), "envoys.groups[0].pools: expected one of a, b, c, not 'x'"),
        (config({"name": "all"}, EDGE), "envoys.groups[1].match: the group all before it takes all of them"),
        (
            config(EDGE, {"name": "more", "match": {"id": "edge-1*"}}),
            "envoys.groups[1].match: the group edge before it takes all of them",
        ),
        (
            config({**EDGE, "match": {"id": "e*e"}}),
            "envoys.groups[0].match.id: expected a * at the end alone, not 'e*e'",
        ),
        (
            config({**EDGE, "match": {"metadata": {"a": 1}}}),
            "match.metadata: expected a text of at most 512 characters",
        ),
        (config({**EDGE, "match": {"metadata": []}}), "match.metadata: expected a mapping, not an empty list"),
        (config(EDGE, envoy={"group": "x"}), "envoy.group: expected one of edge, default, not 'x'"),
        (
            config({**EDGE, "listener": {"address": "127.0.0.1", "port": 2}}),
            "pools[1].endpoints[0].address: 127.0.0.1:2 is where envoys.groups[0] listens for clients",
        ),
        (
            config(SIDECAR, routes=[{"path": "/x", "split": [{"pool": "a"}, {"pool": "b"}]}]),
            "envoys.groups[0].pools: expected all pools of the split in routes[0], or none of them",
        ),
    ],
)
def test_what_makes_no_sense_is_said(data: dict[str, Any], said: str) -> None:
    found = faults(data)
    assert any(said in line for line in found), found


def test_a_group_without_the_pool_that_gets_copies_is_refused() -> None:
    data = config(SIDECAR)
    data["pools"][0]["mirror"] = {"pool": "b"}
    assert faults(data) == ["envoys.groups[0].pools: expected b beside a, which is copied there"]


def test_groups_that_overlap_but_leave_something_are_taken() -> None:
    assert envoys({**EDGE, "match": {"id": "edge-1*"}}, {"name": "more", "match": {"id": "edge-*"}}).groups
    assert envoys({**EDGE, "match": {"id": "edge-"}}, {"name": "more", "match": {"id": "edge-*"}}).groups
