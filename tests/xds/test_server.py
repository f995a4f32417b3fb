"""The discovery service over real gRPC: with clients that misbehave, and with a real Envoy."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from protos.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse
from tests.envoy_process import running_envoy
from tests.ports import free_port
from tests.xds.fleets import config, pool
from tests.xds.wire import fleet
from tidegate.config import Config
from xds import bootstrap, build
from xds.events import Acked, DiscoveryEvent, Pushed, Rejected, StreamClosed, StreamOpened
from xds.server import DiscoveryServer
from xds.services import AGGREGATED
from xds.snapshot import Reference, Resource, Snapshot
from xds.type_urls import CLUSTER, ENDPOINT, ORDER, ROUTE, SECRET

Call = grpc.aio.StreamStreamCall[Any, Any]


@asynccontextmanager
async def serving(server: DiscoveryServer, port: int) -> AsyncIterator[grpc.aio.Channel]:
    running = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    running.add_generic_rpc_handlers(server.handlers())
    running.add_insecure_port(f"127.0.0.1:{port}")
    await running.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await running.stop(0)


def call(channel: grpc.aio.Channel, method: str = "DeltaAggregatedResources") -> Call:
    return channel.stream_stream(f"/{AGGREGATED.name}/{method}")(timeout=20)


async def ask(stream: Call, type_url: str, names: tuple[str, ...] = (), nonce: str = "", error: str = "") -> None:
    request = DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=names, response_nonce=nonce)
    request.node.id = "envoy-7"
    if error:
        request.error_detail.message = error
    await stream.write(request.SerializeToString())


async def receive(stream: Call) -> DeltaDiscoveryResponse:
    return DeltaDiscoveryResponse.FromString(await message(stream))


async def message(stream: Call) -> bytes:
    read = await stream.read()
    assert isinstance(read, bytes), "the stream ended"
    return read


async def until(holds: Any) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_client_waits_until_there_is_something_to_tell_and_then_hears_only_of_changes() -> None:
    server = DiscoveryServer(lambda _: None)
    async with serving(server, free_port()) as channel:
        stream = call(channel)
        await ask(stream, ENDPOINT, ("a",))
        await until(lambda: server.streams == 1)
        server.publish(fleet({"a": "1"}))
        first = await receive(stream)
        assert [one.name for one in first.resources] == ["a"]
        await ask(stream, ENDPOINT, nonce=first.nonce)
        server.publish(fleet({"a": "1"}))
        server.publish(fleet({"a": "2"}))
        second = await receive(stream)
        assert second.resources[0].version == fleet({"a": "2"}).of_type(ENDPOINT)["a"].version
        stream.cancel()
        await until(lambda: server.streams == 0)


def of_a_stream(record: logging.LogRecord) -> bool:
    """Leave out the poller of gRPC, which outlives the loop of an earlier test and says so."""
    return record.name != "asyncio"


async def test_the_state_of_the_world_is_served_on_its_own_method() -> None:
    server = DiscoveryServer(lambda _: None)
    server.publish(fleet({"a": "1", "b": "1"}))
    async with serving(server, free_port()) as channel:
        stream = call(channel, "StreamAggregatedResources")
        await stream.write(DiscoveryRequest(type_url=CLUSTER).SerializeToString())
        response = DiscoveryResponse.FromString(await message(stream))
        assert [packed.value for packed in response.resources] == [b"cluster a 1", b"cluster b 1"]
        assert {packed.type_url for packed in response.resources} == {CLUSTER}
        stream.cancel()


async def test_closing_ends_every_stream_well_so_that_the_server_stops_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Cut off by the server's stop, a stream would cost its whole grace, and gRPC would log a traceback for it."""
    seen: list[DiscoveryEvent] = []
    server = DiscoveryServer(seen.append)
    server.publish(fleet({"a": "1"}))
    async with serving(server, free_port()) as channel:
        mute, silent = call(channel), call(channel)
        await ask(mute, ENDPOINT, ("a",))
        await receive(mute)
        await silent.wait_for_connection()
        await until(lambda: server.streams == 2)
        server.close()
        await until(lambda: server.streams == 0)
        assert await mute.code() is grpc.StatusCode.OK
    assert [event.error for event in seen if isinstance(event, StreamClosed)] == [None]
    assert [
        record.getMessage() for record in caplog.records if record.levelname == "ERROR" and of_a_stream(record)
    ] == []


async def test_what_happens_is_told_to_the_observer() -> None:
    seen: list[DiscoveryEvent] = []
    server = DiscoveryServer(seen.append)
    server.publish(fleet({"a": "1"}))
    async with serving(server, free_port()) as channel:
        stream = call(channel)
        await ask(stream, ENDPOINT, ("a",))
        first = await receive(stream)
        await ask(stream, ENDPOINT, nonce=first.nonce)
        await until(lambda: any(isinstance(event, Acked) for event in seen))
        server.publish(fleet({"a": "2"}))
        second = await receive(stream)
        await ask(stream, ENDPOINT, nonce=second.nonce, error="line one\nline two " + "x" * 5000)
        await until(lambda: any(isinstance(event, Rejected) for event in seen))
        await stream.done_writing()
        await until(lambda: any(isinstance(event, StreamClosed) for event in seen))
    opened, *between, closed = seen
    assert opened == StreamOpened(1, "envoy-7", incremental=True, group="default")
    # What was sent may be answered before we know that it was written.
    assert [event for event in between if isinstance(event, Pushed)] == [Pushed(1, "envoy-7", ENDPOINT, 1, 0)] * 2
    (acked,) = (event for event in between if isinstance(event, Acked))
    (rejected,) = (event for event in between if isinstance(event, Rejected))
    assert acked == Acked(1, "envoy-7", ENDPOINT)
    assert len(between) == 4
    assert rejected.versions == {"a": second.resources[0].version}
    assert rejected.message.startswith("line one line two xxx")
    assert len(rejected.message) <= 1000
    assert closed == StreamClosed(1, "envoy-7", None)


async def test_a_client_that_sends_nonsense_is_told_so_and_others_go_on() -> None:
    seen: list[DiscoveryEvent] = []
    server = DiscoveryServer(seen.append)
    server.publish(fleet({"a": "1"}))
    async with serving(server, free_port()) as channel:
        good, bad, greedy = call(channel), call(channel), call(channel)
        await ask(good, ENDPOINT, ("a",))
        first = await receive(good)
        await bad.write(b"\xff\xff\xff")
        assert await bad.code() is grpc.StatusCode.INVALID_ARGUMENT
        await ask(greedy, ENDPOINT, tuple(str(number) for number in range(10_001)))
        assert await greedy.code() is grpc.StatusCode.INVALID_ARGUMENT
        await ask(good, ENDPOINT, nonce=first.nonce)
        server.publish(fleet({"a": "2"}))
        assert (await receive(good)).resources[0].name == "a"
        assert server.streams == 1
        good.cancel()


async def test_an_error_on_this_side_ends_one_stream_and_names_no_internals() -> None:
    closed: list[StreamClosed] = []

    def observe(event: DiscoveryEvent) -> None:
        if isinstance(event, StreamClosed):
            closed.append(event)
        elif isinstance(event, Pushed):
            raise OSError("the observer broke")

    server = DiscoveryServer(observe)
    server.publish(fleet({"a": "1"}))
    async with serving(server, free_port()) as channel:
        stream = call(channel)
        await ask(stream, ENDPOINT, ("a",))
        await receive(stream)
        assert await stream.code() is grpc.StatusCode.INTERNAL
        assert await stream.details() == "the discovery stream failed"
    assert closed[0].error == "OSError('the observer broke')"
    assert server.streams == 0


async def test_more_streams_than_allowed_are_refused() -> None:
    server = DiscoveryServer(lambda _: None, max_streams=1)
    async with serving(server, free_port()) as channel:
        first = call(channel)
        await ask(first, CLUSTER)
        await until(lambda: server.streams == 1)
        second = call(channel)
        assert await second.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.streams == 1
        first.cancel()


def test_an_inconsistent_snapshot_is_not_published() -> None:
    server = DiscoveryServer(lambda _: None)
    with pytest.raises(ValueError, match="RouteConfiguration r names the Cluster gone, which does not exist"):
        server.publish(Snapshot([Resource(ROUTE, "r", b"", frozenset({Reference(CLUSTER, "gone")}))]))


@pytest.mark.parametrize("api_type", ["DELTA_GRPC", "GRPC"])
async def test_a_real_envoy_applies_every_variant_of_what_is_built(api_type: str) -> None:
    declared = tuple(
        {"name": name, "engine": engine, "models": (name,), "retries": retries, "endpoints": ({"address": address},)}
        for name, engine, retries, address in (("a", "vllm", 0, "127.0.0.1:1"), ("b", "llamacpp", 10, "[::1]:2"))
    )
    of = Config.model_validate(
        {
            "listener": {"port": free_port()},
            "control": {"xds_port": free_port(), "ext_proc_port": free_port()},
            "envoy": {"admin_port": free_port()},
            "limits": {
                "decision_timeout_seconds": 0.25,
                "idle_timeout_seconds": 86400.0,
                "max_body_bytes": 268_435_456,
            },
            "pools": declared,
        }
    )
    seen: list[DiscoveryEvent] = []
    server = DiscoveryServer(seen.append)
    server.publish(build.snapshot(of, [pool("a", {}), pool("b", {"[::1]:2": 3})]))
    text = bootstrap.render(of, bootstrap.template().replace("DELTA_GRPC", api_type))
    async with serving(server, of.control.xds_port), running_envoy(text, of.envoy.admin_port) as envoy:
        # Envoy may be ready a moment before its last ACK is here.
        await until(lambda: {event.type_url for event in seen if isinstance(event, Acked)} == {*ORDER} - {SECRET})
        assert not [event for event in seen if isinstance(event, Rejected)]
        assert await envoy.stat("cluster_manager.warming_clusters") == 0
        assert "deprecated" not in envoy.log().lower()


def test_the_fleet_of_a_configuration_can_be_published() -> None:
    server = DiscoveryServer(lambda _: None)
    server.publish(build.snapshot(config("a"), [pool("a", {"127.0.0.1:1": 1})]))
    assert server.streams == 0


async def test_closing_ends_every_stream_in_order_and_takes_no_more(caplog: pytest.LogCaptureFixture) -> None:
    happened: list[DiscoveryEvent] = []
    server = DiscoveryServer(happened.append)
    async with serving(server, free_port()) as channel:
        stream = call(channel)
        await ask(stream, CLUSTER)
        await until(lambda: happened)
        server.close()
        assert await stream.code() is grpc.StatusCode.OK
        assert happened[-1:] == [StreamClosed(1, "envoy-7", None)]
        assert server.streams == 0
        late = call(channel)
        assert await late.code() is grpc.StatusCode.UNAVAILABLE
    assert not [*filter(of_a_stream, caplog.records)], "grpc complains of streams that are broken off"
