"""The services of one type each, and what is shown of their clients."""

import asyncio

import grpc
import pytest

from protos.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse
from tests.envoy_process import running_envoy
from tests.ports import free_port
from tests.xds.fleets import pool
from tests.xds.test_server import Call, call, message, receive, serving, until
from tests.xds.wire import Wire, fleet
from xds.endpoints import assignment, members
from xds.events import Acked, DiscoveryEvent
from xds.response import Encoder, next_offer
from xds.server import DiscoveryServer
from xds.services import AGGREGATED, SERVICES, Service
from xds.snapshot import Resource, Snapshot
from xds.standing import Parked
from xds.subscription import Offer
from xds.turnstile import Turnstile
from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ORDER, ROUTE, SECRET

NAMES = {CLUSTER: ("a",), ENDPOINT: ("a",), LISTENER: ("l",), ROUTE: ("r",), SECRET: ("s",)}
OF_ONE_TYPE = [service for service in SERVICES if service.type_url]


def test_every_type_has_its_service_and_one_has_all() -> None:
    assert sorted(service.type_url for service in OF_ONE_TYPE) == sorted(ORDER)
    assert not AGGREGATED.type_url


@pytest.mark.parametrize("service", OF_ONE_TYPE, ids=lambda service: service.state_of_the_world)
@pytest.mark.parametrize("said", [True, False], ids=["with type", "without"])
async def test_a_type_is_served_alone_in_both_variants(service: Service, said: bool) -> None:
    server = DiscoveryServer(lambda _: None)
    server.publish(fleet({"a": "1"}))
    type_url, names = service.type_url if said else "", NAMES[service.type_url]
    async with serving(server, free_port()) as channel:
        whole: Call = channel.stream_stream(f"/{service.name}/{service.state_of_the_world}")(timeout=20)
        await whole.write(DiscoveryRequest(type_url=type_url, resource_names=names).SerializeToString())
        response = DiscoveryResponse.FromString(await message(whole))
        assert (response.type_url, len(response.resources)) == (service.type_url, 1)
        delta: Call = channel.stream_stream(f"/{service.name}/{service.delta}")(timeout=20)
        await delta.write(DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=names).SerializeToString())
        changes = await receive(delta)
        assert (changes.type_url, [one.name for one in changes.resources]) == (service.type_url, list(names))
        for stream in (whole, delta):
            stream.cancel()


async def test_another_type_is_refused_there() -> None:
    server = DiscoveryServer(lambda _: None)
    server.publish(fleet({"a": "1"}))
    (service,) = (one for one in SERVICES if one.type_url == ENDPOINT)
    async with serving(server, free_port()) as channel:
        stream: Call = channel.stream_stream(f"/{service.name}/{service.delta}")(timeout=20)
        await stream.write(DeltaDiscoveryRequest(type_url=CLUSTER).SerializeToString())
        assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "is about" in str(await stream.details())


async def test_it_is_shown_what_a_client_has_and_why_it_refused_the_rest() -> None:
    server = DiscoveryServer(lambda _: None)
    server.publish(fleet({"a": "1", "b": "1"}))
    async with serving(server, free_port()) as channel:
        stream = call(channel)
        request = DeltaDiscoveryRequest(type_url=ENDPOINT, resource_names_subscribe=["a", "b"])
        request.node.id = "edge-1"
        await stream.write(request.SerializeToString())
        first = await receive(stream)
        await stream.write(DeltaDiscoveryRequest(type_url=ENDPOINT, response_nonce=first.nonce).SerializeToString())
        await until(lambda: server.standings() and server.standings()[0].up_to_date)
        server.publish(fleet({"a": "2", "b": "1"}))
        second = await receive(stream)
        refusal = DeltaDiscoveryRequest(type_url=ENDPOINT, response_nonce=second.nonce)
        refusal.error_detail.message = "no such\nlocality"
        await stream.write(refusal.SerializeToString())
        await until(lambda: server.standings()[0].types[0].parked)
        (standing,) = server.standings()
        (kind,) = standing.types
        assert (standing.node, standing.incremental, standing.up_to_date) == ("edge-1", True, True)
        assert (kind.type_url, kind.held, kind.waits) == (ENDPOINT, 2, False)
        assert kind.parked == {"a": Parked(second.resources[0].version, "no such locality")}
        server.publish(fleet({"a": "3", "b": "1"}))
        third = await receive(stream)
        await stream.write(DeltaDiscoveryRequest(type_url=ENDPOINT, response_nonce=third.nonce).SerializeToString())
        await until(lambda: not server.standings()[0].types[0].parked)
        stream.cancel()


def offer(*contents: str, removed: tuple[str, ...] = (), complete: bool = False) -> Offer:
    resources = tuple(Resource(ENDPOINT, f"r{at}", content.encode()) for at, content in enumerate(contents))
    return Offer(ENDPOINT, resources, {one.name: one.version for one in resources}, removed, complete=complete)


@pytest.mark.parametrize("complete", [True, False])
def test_what_is_encoded_once_is_the_same_for_all_but_for_the_nonce(complete: bool) -> None:
    shared = Encoder()
    for nonce, content in (("1", "a"), ("2", "a"), ("3", "b"), ("4", "a")):
        what = offer(content, "x", removed=() if complete else ("gone",), complete=complete)
        assert shared.encode(what, nonce) == Encoder().encode(what, nonce)
        if complete:
            response = DiscoveryResponse.FromString(shared.encode(what, nonce))
            assert (response.nonce, [one.value for one in response.resources]) == (nonce, [content.encode(), b"x"])


def test_what_is_remembered_of_encoding_is_bounded() -> None:
    encoder = Encoder(most_bytes=1_000)
    for number in range(100):
        encoder.encode(offer(f"{number}" + "x" * 300), "1")
    assert encoder._bytes == sum(map(len, encoder._encoded.values())) <= 1_000


def test_a_snapshot_for_many_is_encoded_once() -> None:
    snapshot: Snapshot = fleet({f"p{number}": "1" for number in range(50)})
    encoder = Encoder()
    for _ in range(10):
        wire = Wire(incremental=True)
        wire.change(CLUSTER, [])
        found = next_offer(snapshot, wire.client)
        assert found is not None
        encoder.encode(found, "1")
    assert len(encoder._encoded) == 1


async def test_so_many_are_sent_everything_at_once_and_the_others_wait_their_turn() -> None:
    turnstile = Turnstile(at_once=2, seconds=60)
    first, second = await turnstile.enter(), await turnstile.enter()
    third = asyncio.ensure_future(turnstile.enter())
    await asyncio.sleep(0)
    assert not third.done()
    first.end()
    first.end()
    assert await asyncio.wait_for(third, 5)
    fourth = asyncio.ensure_future(turnstile.enter())
    await asyncio.sleep(0)
    assert not fourth.done()
    second.end()
    (await asyncio.wait_for(fourth, 5)).end()


async def test_a_client_that_is_slow_does_not_keep_the_others_out() -> None:
    turnstile = Turnstile(at_once=1, seconds=0.05)
    await turnstile.enter()
    await asyncio.wait_for(turnstile.enter(), 5)


async def test_clients_that_come_while_others_are_served_are_served_after_them() -> None:
    server = DiscoveryServer(lambda _: None)
    server._turnstile = Turnstile(at_once=1, seconds=60)
    server.publish(fleet({"a": "1"}))
    async with serving(server, free_port()) as channel:
        first, second = call(channel), call(channel)
        request = DeltaDiscoveryRequest(type_url=ENDPOINT, resource_names_subscribe=["a"]).SerializeToString()
        await first.write(request)
        response = await receive(first)
        await second.write(request)
        await until(lambda: len(server.standings()) == 2)
        waiting = asyncio.ensure_future(receive(second))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await first.write(DeltaDiscoveryRequest(type_url=ENDPOINT, response_nonce=response.nonce).SerializeToString())
        assert [one.name for one in (await waiting).resources] == ["a"]
        for stream in (first, second):
            stream.cancel()


ALONE = """
node: {{id: mine, cluster: mine}}
admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {admin}}}}}}}
static_resources:
  clusters:
  - name: a
    type: EDS
    eds_cluster_config:
      eds_config:
        resource_api_version: V3
        api_config_source:
          api_type: {api}
          transport_api_version: V3
          grpc_services: [{{envoy_grpc: {{cluster_name: tidegate}}}}]
  - name: tidegate
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment:
      cluster_name: tidegate
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {xds}}}}}}}
"""


@pytest.mark.parametrize("api", ["GRPC", "DELTA_GRPC"])
async def test_a_real_envoy_with_a_configuration_of_its_own_takes_endpoints_alone(api: str) -> None:
    xds, admin = free_port(), free_port()
    seen: list[DiscoveryEvent] = []
    server = DiscoveryServer(seen.append)
    server.publish(Snapshot([assignment("a", members(pool("a", {"127.0.0.9:1": 1})))]))
    text = ALONE.format(admin=admin, xds=xds, api=api)
    async with serving(server, xds), running_envoy(text, admin) as envoy:
        assert "127.0.0.9:1" in await envoy.get("/clusters")
        server.publish(Snapshot([assignment("a", members(pool("a", {"127.0.0.8:2": 1})))]))
        await until(lambda: sum(isinstance(event, Acked) for event in seen) == 2)
        clusters = await envoy.get("/clusters")
        assert "127.0.0.8:2" in clusters
        assert "127.0.0.9:1" not in clusters
        assert [(one.node, len(one.types)) for one in server.standings()] == [("mine", 1)]
