"""Groups of Envoys: each sees its own, and who is in none hears so."""

from typing import Any

import grpc
import pytest
from envoy_data_plane.envoy.config.listener.v3 import Listener
from envoy_data_plane.envoy.config.route.v3 import RouteConfiguration
from hypothesis import given
from hypothesis import strategies as st

from protos import core_pb2
from protos.discovery_pb2 import DeltaDiscoveryRequest
from tests.ports import free_port
from tests.xds.fleets import pool
from tests.xds.test_server import Call, call, receive, serving, until
from tests.xds.wire import fleet
from tidegate.config import Config
from tidegate.config_envoys import Match, Node
from xds import build, fail_open
from xds.events import DiscoveryEvent, Refused
from xds.groups import Groups, introduced
from xds.server import DiscoveryServer
from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ROUTE

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
EDGE = {"name": "edge", "match": {"cluster": "edge"}, "listener": {"address": "0.0.0.0", "port": 8443}}
SIDECAR = {"name": "sidecar", "match": {"metadata": {"role": "sidecar"}}, "pools": ("a",)}


def grouped(*groups: dict[str, Any], others: str = "default", **more: Any) -> Config:
    pools = tuple(
        {"name": name, "models": (name,), "endpoints": ({"address": address},), **more}
        for name, address in (("a", A), ("b", B))
    )
    return Config.model_validate({"pools": pools, "envoys": {"groups": groups, "others": others}})


def built(config: Config) -> Groups:
    return build.groups(config, [pool("a", {A: 1}), pool("b", {B: 1})])


def test_each_group_has_its_listener_and_its_pools() -> None:
    snapshots = built(grouped(EDGE, SIDECAR)).snapshots
    addresses = {
        name: Listener().parse(one.of_type(LISTENER)["inference"].body).address for name, one in snapshots.items()
    }
    sockets = {name: address.socket_address for name, address in addresses.items() if address is not None}
    ports = {name: socket.port_value for name, socket in sockets.items() if socket is not None}
    assert ports == {"edge": 8443, "sidecar": 8080, "default": 8080}
    known = {name: {"a", "b"} & {*snapshot.of_type(CLUSTER)} for name, snapshot in snapshots.items()}
    assert known == {"edge": {"a", "b"}, "sidecar": {"a"}, "default": {"a", "b"}}
    assert {*snapshots["sidecar"].of_type(ENDPOINT)} == {"a"}
    assert not Groups(snapshots, lambda _: None).consistent()


def test_what_groups_have_in_common_is_built_and_serialized_once() -> None:
    config = grouped(EDGE, SIDECAR, {**SIDECAR, "name": "same", "match": {"cluster": "x"}})
    snapshots = built(config).snapshots
    assert snapshots["same"] is snapshots["sidecar"]
    for type_url, name in ((CLUSTER, "a"), (ENDPOINT, "a"), (CLUSTER, "tidegate_ext_proc")):
        assert len({id(snapshot.of_type(type_url)[name]) for snapshot in snapshots.values()}) == 1


def test_without_groups_everybody_gets_the_same() -> None:
    groups = built(grouped())
    assert {*groups.snapshots} == {"default"}
    assert groups.group_of(Node("x", "y", {"z": "1"})) == "default"


def test_where_others_are_refused_there_is_nothing_for_them() -> None:
    groups = built(grouped(EDGE, others="refuse"))
    assert {*groups.snapshots} == {"edge"}
    assert groups.group_of(Node("x")) is None


def test_a_request_for_a_pool_of_others_is_refused_and_goes_to_no_other() -> None:
    config = grouped(SIDECAR, fail_open=True)
    body = built(config).snapshots["sidecar"].of_type(ROUTE)["inference"].body
    routes = RouteConfiguration().parse(body).virtual_hosts[0].routes
    (refused,) = (one for one in routes if one.name == "b/elsewhere")
    assert refused.direct_response is not None
    assert refused.direct_response.status == 404
    assert not any(one.route is not None and one.route.cluster == "b" for one in routes)
    # Nor does it when nobody decides: the pattern of the other pool is still the one that counts.
    ways = [*fail_open.ways(config, frozenset({"b"}))]
    assert {way.pool.name for way in ways if way.pool is not None} == {"a"}
    assert any(way.name == "b/closed" for way in ways)


def two(edge: str = "1", sidecar: str = "1") -> Groups:
    """Return two groups by the cluster of the node; whoever is in no cluster is refused."""
    snapshots = {"edge": fleet({"a": edge, "b": edge}), "sidecar": fleet({"a": sidecar})}
    return Groups(snapshots, lambda node: node.cluster or None)


async def ask(stream: Call, node_id: str, cluster: str, **metadata: str) -> None:
    request = DeltaDiscoveryRequest(type_url=CLUSTER)
    request.node.id, request.node.cluster = node_id, cluster
    request.node.metadata.update(metadata)
    await stream.write(request.SerializeToString())


async def test_two_clients_are_each_sent_what_their_group_should_have() -> None:
    server = DiscoveryServer(lambda _: None)
    server.publish_groups(two())
    async with serving(server, free_port()) as channel:
        edge, sidecar = call(channel), call(channel)
        await ask(edge, "1", "edge")
        await ask(sidecar, "2", "sidecar")
        first, second = await receive(edge), await receive(sidecar)
        assert [one.name for one in first.resources] == ["a", "b"]
        assert [one.name for one in second.resources] == ["a"]
        # An acknowledgement says nothing of the node any more.
        await sidecar.write(DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce=second.nonce).SerializeToString())
        await until(lambda: any(one.up_to_date for one in server.standings()))
        assert {one.node: (one.group, one.up_to_date) for one in server.standings()} == {
            "1": ("edge", False),
            "2": ("sidecar", True),
        }
        for stream in (edge, sidecar):
            stream.cancel()


async def test_a_client_in_no_group_is_told_so_and_sent_nothing() -> None:
    seen: list[DiscoveryEvent] = []
    server = DiscoveryServer(seen.append)
    server.publish_groups(two())
    async with serving(server, free_port()) as channel:
        stream = call(channel)
        await ask(stream, "stranger", "")
        assert await stream.code() is grpc.StatusCode.PERMISSION_DENIED
        said = "no group of Envoys takes the node 'stranger' (cluster '')"
        assert await stream.details() == said
    assert seen == [Refused("stranger", said)]
    assert server.refused == 1


async def test_a_client_that_came_before_anything_was_published_is_refused_when_it_is() -> None:
    server = DiscoveryServer(lambda _: None)
    async with serving(server, free_port()) as channel:
        stream, taken = call(channel), call(channel)
        await ask(stream, "stranger", "")
        await ask(taken, "1", "edge")
        await until(lambda: len(server.standings()) == 2)
        server.publish_groups(two())
        assert await stream.code() is grpc.StatusCode.PERMISSION_DENIED
        assert [one.name for one in (await receive(taken)).resources] == ["a", "b"]
        taken.cancel()


async def test_a_client_whose_group_changes_is_sent_the_difference_or_refused() -> None:
    server = DiscoveryServer(lambda _: None)
    server.publish_groups(two())
    async with serving(server, free_port()) as channel:
        stream = call(channel)
        await ask(stream, "1", "sidecar")
        first = await receive(stream)
        await stream.write(DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce=first.nonce).SerializeToString())
        await until(lambda: server.up_to_date)
        server.publish_groups(Groups(two().snapshots, lambda _: "edge"))
        second = await receive(stream)
        assert [one.name for one in second.resources] == ["b"]
        assert not second.removed_resources
        assert server.standings()[0].group == "edge"
        server.publish_groups(Groups(two().snapshots, lambda _: None))
        assert await stream.code() is grpc.StatusCode.PERMISSION_DENIED
    assert server.refused == 1


def test_a_group_that_names_what_it_lacks_is_not_published() -> None:
    server = DiscoveryServer(lambda _: None)
    missing = build.groups(grouped(SIDECAR), [pool("b", {B: 1})])
    with pytest.raises(ValueError, match="group sidecar: Cluster a names the ClusterLoadAssignment a"):
        server.publish_groups(missing)


@pytest.mark.parametrize("said", [{"role": "sidecar", "n": 1.0}, {"role": "sidecar", "deep": {"role": "x"}}])
async def test_what_is_no_text_in_the_metadata_of_a_node_says_nothing(said: dict[str, Any]) -> None:
    found: list[Node] = []
    server = DiscoveryServer(lambda _: None)
    server.publish_groups(Groups(two().snapshots, lambda node: found.append(node) or "edge"))  # type: ignore[func-returns-value]
    async with serving(server, free_port()) as channel:
        stream = call(channel)
        await ask(stream, "1", "x", **said)
        await receive(stream)
        stream.cancel()
    assert found == [Node("1", "x", {"role": "sidecar"})]


@given(
    text=st.sampled_from(["a", "ä", "ab"]).flatmap(lambda part: st.integers(0, 600).map(lambda times: part * times)),
    pattern=st.sampled_from(["a", "ä", "ab"]).flatmap(lambda part: st.integers(1, 127).map(lambda times: part * times)),
    star=st.booleans(),
)
def test_what_is_kept_of_a_node_is_matched_as_the_whole_is(text: str, pattern: str, star: bool) -> None:
    said = core_pb2.Node(id=text, cluster=text)
    said.metadata.fields["role"].string_value = text
    whole = Node(text, text, {"role": text})
    for match in (
        Match(id=f"{pattern}*" if star else pattern),
        Match(cluster=f"{pattern}*" if star else pattern),
        Match.model_validate({"metadata": {"role": pattern}}),
    ):
        assert match.takes(introduced(said)) == match.takes(whole)


async def test_a_long_name_is_shown_cut_and_matched_whole() -> None:
    seen: list[DiscoveryEvent] = []
    server = DiscoveryServer(seen.append)
    long = "x" * 2_000_000
    cut = "x" * 255 + "…"
    server.publish_groups(Groups(two().snapshots, lambda node: "edge" if node.cluster == "edge" else None))
    async with serving(server, free_port()) as channel:
        taken, refused = call(channel), call(channel)
        await ask(taken, long, "edge")
        await ask(refused, long, long)
        await receive(taken)
        assert await refused.code() is grpc.StatusCode.PERMISSION_DENIED
        assert len(await refused.details() or "") < 1100
        assert [one.node for one in server.standings()] == [cut]
        taken.cancel()
    assert {event.node for event in seen} == {cut}
    assert len(repr(seen)) < 20_000


async def test_a_node_that_says_too_much_of_itself_is_told_so() -> None:
    server = DiscoveryServer(lambda _: None)
    server.publish(fleet({"a": "1"}))
    request = DeltaDiscoveryRequest(type_url=ENDPOINT)
    for number in range(1001):
        request.node.metadata.fields[f"{number}"].string_value = "x"
    async with serving(server, free_port()) as channel:
        stream = call(channel)
        await stream.write(request.SerializeToString())
        assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await stream.details() == "too much metadata of the node"
