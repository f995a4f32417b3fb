"""A real Envoy, configured by the discovery server alone, with a stub that decides and two engines."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest

from protos import access_log_pb2, ai_pb2, ext_proc_pb2
from tests.e2e.gateway import (
    MAX_BODY,
    PORT_70000,
    Control,
    Decider,
    Engine,
    Gateway,
    config_for,
    eventually,
    standing,
    view,
)
from tests.envoy_process import EnvoyProcess, running_envoy
from tests.ports import free_port
from xds import bootstrap, build
from xds.events import Rejected, StreamOpened
from xds.snapshot import Resource, Snapshot
from xds.type_urls import LISTENER, ORDER


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with standing() as running:
        yield running


async def test_the_named_endpoint_serves(gateway: Gateway) -> None:
    for engine in (*gateway.engines, *reversed(gateway.engines)):
        gateway.decider.destinations = engine.address
        assert await gateway.served_by() == engine.port


async def test_bodies_up_to_the_limit_are_decided_on_and_larger_ones_get_413(gateway: Gateway) -> None:
    gateway.decider.destinations = gateway.engines[1].address
    for size in (5_000_000, 20_000_000):
        assert (await gateway.post(size))[1]["size"] == size
    status, answer = await gateway.post(MAX_BODY + 1_000_000)
    assert status == 413
    assert answer["error"]["code"] == "request_too_large"
    assert gateway.decider.bodies == [5_000_000, 20_000_000]


async def test_a_request_without_a_decision_goes_nowhere(gateway: Gateway) -> None:
    for pool in (None, "unknown"):
        gateway.decider.pool = pool
        gateway.decider.destinations = gateway.engines[0].address
        status, answer = await gateway.post()
        assert status == 503
        assert answer == {
            "error": {
                "message": "No endpoint can take this request now. Try again later.",
                "type": "server_error",
                "param": None,
                "code": "service_unavailable",
            }
        }
        assert gateway.last_headers["retry-after"] == "1"
        assert gateway.last_headers["content-type"] == "application/json"
    assert not any(engine.seen for engine in gateway.engines)


async def test_a_refused_connection_and_a_busy_engine_are_retried_on_the_next_of_the_list(gateway: Gateway) -> None:
    first, second = gateway.engines
    gone = f"127.0.0.1:{free_port()}"
    gateway.control.server.publish(gateway.snapshot(first.address, second.address, gone))
    await eventually(lambda: _members(gateway, "small", 3))
    gateway.decider.destinations = f"{gone},{second.address}"
    assert await gateway.served_by() == second.port
    assert await gateway.served_by(5_000_000) == second.port
    first.status = 503
    gateway.decider.destinations = f"{first.address},{second.address}"
    assert await gateway.served_by() == second.port


async def test_a_removed_endpoint_is_not_used_even_when_it_is_named(gateway: Gateway) -> None:
    first, second = gateway.engines
    gateway.control.server.publish(gateway.snapshot(second.address))
    await eventually(lambda: _members(gateway, "small", 1))
    gateway.decider.destinations = first.address
    assert await gateway.served_by() == second.port


async def test_control_headers_of_a_client_reach_neither_the_decision_nor_the_engine(gateway: Gateway) -> None:
    first, second = gateway.engines
    gateway.decider.destinations = second.address
    evil = {
        "x-gateway-destination-endpoint": first.address,
        "X-LLM-D-Objective": "critical",
        "x-envoy-max-retries": "50",
        "x-envoy-original-dst-host": first.address,
        "x-tenant-id": "victim",
        "x-prefiller-host-port": first.address,
        "x-custom": "kept",
    }
    status, answer = await gateway.post(headers=evil)
    assert (status, answer["port"]) == (200, second.port)
    assert {name.lower() for name in evil} & {*second.seen[0]} == {"x-custom"}
    (asked,) = gateway.decider.headers
    assert asked["request.path"] == "/v1/chat/completions"
    assert not [name for name in evil if name.lower() in "".join(asked)]
    assert "x-gateway-destination-endpoint-served" not in gateway.last_headers
    assert gateway.last_headers["server"] == "tidegate"
    assert gateway.last_headers["x-request-id"] == second.seen[0]["x-request-id"]


async def test_odd_requests_are_refused_in_the_form_of_openai(gateway: Gateway) -> None:
    status, answer = await gateway.post(headers={"x_gateway_x": "1"})
    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert not gateway.decider.headers


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (b"POST /v1/completions HTTP/1.0\r\n\r\n", 426, "http_version"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: identity, chunked\r\n\r\n", 501, "transfer_encoding"),
    ],
)
async def test_http_that_is_not_served_is_refused_with_what_is(
    gateway: Gateway, request_bytes: bytes, status: int, code: str
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.config.listener.port)
    writer.write(request_bytes)
    head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
    writer.close()
    error = json.loads(body)["error"]
    assert (head.split()[1], error["code"], error["type"]) == (b"%d" % status, code, "invalid_request_error")


async def test_engines_are_not_asked_to_compress_what_usage_is_read_from(gateway: Gateway) -> None:
    await gateway.post(headers={"accept-encoding": "gzip, br"})
    seen = [headers for engine in gateway.engines for headers in engine.seen]
    assert seen
    assert not [headers for headers in seen if "accept-encoding" in headers]


async def test_an_answer_that_is_no_http_is_no_answer(gateway: Gateway) -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"garbage\r\n\r\n")
        writer.close()

    port = free_port()
    async with await asyncio.start_server(garbage, "127.0.0.1", port):
        gateway.control.server.publish(gateway.snapshot(f"127.0.0.1:{port}"))
        await eventually(lambda: _members(gateway, "small", 1))
        status, answer = await gateway.post()
    # Twice it ended without an answer: it is not tried a third time.
    assert (status, answer["error"]["code"], answer["error"]["type"]) == (503, "service_unavailable", "server_error")


async def test_a_refusal_by_the_decider_passes_as_it_is(gateway: Gateway) -> None:
    body = b'{"error": {"message": "slow down", "type": "rate_limit_error", "param": null, "code": "x"}}'
    for status in (429, 503):
        refusal = ext_proc_pb2.ImmediateResponse(body=body, details="refused")
        refusal.status.code = status  # type: ignore[assignment]  # an open enum
        header = refusal.headers.set_headers.add()
        header.header.key, header.header.raw_value = "content-type", b"application/json"
        gateway.decider.refuse = refusal
        assert await gateway.post() == (status, json.loads(body))


async def test_without_a_decider_requests_are_refused_in_the_form_of_openai() -> None:
    engines = (Engine(free_port()), Engine(free_port()))
    config = config_for(engines)
    control = Control(config.control.xds_port)
    await control.start(build.snapshot(config, [view("small", engines[0].address), view("large")]))
    try:
        text = bootstrap.render(config, bootstrap.template())
        async with running_envoy(text, config.envoy.admin_port) as envoy, aiohttp.ClientSession() as session:
            gateway = Gateway(config, control, Decider(0), engines, envoy, session)
            status, answer = await gateway.post()
    finally:
        await control.stop()
    assert status == 503
    assert answer["error"]["code"] == "service_unavailable"


async def test_the_access_log_tells_who_served_with_usage_and_time_to_first_token(gateway: Gateway) -> None:
    second = gateway.engines[1]
    gateway.decider.destinations = second.address
    await gateway.served_by()
    await eventually(lambda: gateway.control.entries)
    (entry,) = gateway.control.entries
    common = entry.common_properties
    assert common.access_log_type == access_log_pb2.DownstreamEnd
    assert (common.upstream_cluster, common.route_name) == ("small", "small")
    assert int(common.custom_tags["ttft_us"]) >= int(common.custom_tags["upstream_ttft_us"]) > 0
    metadata = common.metadata.filter_metadata
    assert metadata["tidegate"]["reservation"] == "r1"
    assert metadata["envoy.lb"]["x-gateway-destination-endpoint-served"] == second.address
    usage = ai_pb2.TokenUsage.FromString(common.metadata.typed_filter_metadata["ai_usage"].value)
    assert (usage.input_tokens.value, usage.output_tokens.value) == (3, 4)


async def test_a_bad_listener_is_reported_and_the_last_good_one_goes_on(gateway: Gateway) -> None:
    first, second = gateway.engines
    gateway.decider.destinations = first.address
    good = gateway.snapshot(first.address, second.address)
    listener = good.of_type(LISTENER)["inference"]
    bad = Resource(LISTENER, "inference", listener.body + PORT_70000, listener.references)
    rest = [resource for type_url in ORDER for resource in good.of_type(type_url).values() if resource != listener]
    gateway.control.server.publish(Snapshot([*rest, bad]))
    await eventually(lambda: any(isinstance(event, Rejected) for event in gateway.control.events))
    rejected = [event for event in gateway.control.events if isinstance(event, Rejected)]
    assert [(event.type_url, event.versions) for event in rejected] == [(LISTENER, {"inference": bad.version})]
    assert rejected[0].message
    assert await gateway.served_by() == first.port
    # Other types go on, and the refused version is not sent again.
    removed = [replace_assignment(resource, gateway.snapshot(first.address)) for resource in rest]
    gateway.control.server.publish(Snapshot([*removed, bad]))
    await eventually(lambda: _members(gateway, "small", 1))
    assert sum(isinstance(event, Rejected) for event in gateway.control.events) == 1


def replace_assignment(resource: Resource, source: Snapshot) -> Resource:
    return source.of_type(resource.type_url).get(resource.name, resource)


async def test_a_dead_control_plane_costs_nothing_and_envoy_rejoins_the_next(gateway: Gateway) -> None:
    first, second = gateway.engines
    gateway.decider.destinations = second.address
    await gateway.control.stop()
    for _ in range(5):
        assert await gateway.served_by() == second.port
    gateway.control.events.clear()
    await gateway.control.start(gateway.snapshot(first.address))
    await eventually(lambda: _members(gateway, "small", 1))
    assert any(isinstance(event, StreamOpened) for event in gateway.control.events)
    assert await gateway.served_by() == first.port


async def test_pools_come_and_go_without_a_failed_request(gateway: Gateway) -> None:
    first, second = gateway.engines
    gateway.decider.destinations = first.address
    small = gateway.config.pools[0]
    added = small.model_copy(update={"name": "added", "models": ("added",)})
    both = (first.address, second.address)
    for round_ in range(3):
        wanted = gateway.config.model_copy(update={"pools": (small, added) if round_ % 2 == 0 else (small,)})
        pools = [view(pool.name, *both) for pool in wanted.pools]
        gateway.control.server.publish(build.snapshot(wanted, pools))
        for _ in range(20):
            assert await gateway.served_by() == first.port
    gateway.decider.pool = "added"
    await eventually(lambda: _served(gateway))
    assert not any(isinstance(event, Rejected) for event in gateway.control.events)


@pytest.mark.parametrize("api_type", ["DELTA_GRPC", "GRPC"])
async def test_a_changed_cluster_is_served_again_at_once_in_both_variants(api_type: str) -> None:
    engines = (Engine(free_port()), Engine(free_port()))
    config = config_for(engines)
    control, decider = Control(config.control.xds_port), Decider(config.control.ext_proc_port)
    decider.destinations = engines[1].address
    both = tuple(engine.address for engine in engines)
    text = bootstrap.render(config, bootstrap.template().replace("DELTA_GRPC", api_type))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(engines[1].serving())
        await stack.enter_async_context(decider.serving())
        await control.start(build.snapshot(config, [view("small", *both), view("large", *both)]))
        stack.push_async_callback(control.stop)
        envoy = await stack.enter_async_context(running_envoy(text, config.envoy.admin_port))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        gateway = Gateway(config, control, decider, engines, envoy, session)
        assert await gateway.served_by() == engines[1].port
        # Envoy asks again for the assignment of a cluster that changed, and the cluster warms until it comes.
        before = await envoy.stat("cluster_manager.cluster_modified")
        pools = (config.pools[0].model_copy(update={"engine": "llamacpp"}), config.pools[1])
        changed = config.model_copy(update={"pools": pools})
        control.server.publish(build.snapshot(changed, [view("small", *both), view("large", *both)]))
        await eventually(lambda: _stat_is(envoy, "cluster_manager.cluster_modified", before + 1), 5)
        await eventually(lambda: _stat_is(envoy, "cluster_manager.warming_clusters", 0), 5)
        control.server.publish(build.snapshot(changed, [view("small", both[1]), view("large", *both)]))
        await eventually(lambda: _members(gateway, "small", 1), 5)
        assert await gateway.served_by() == engines[1].port
        assert not any(isinstance(event, Rejected) for event in control.events)


async def _stat_is(envoy: EnvoyProcess, name: str, value: int) -> bool:
    return await envoy.stat(name) == value


async def _members(gateway: Gateway, pool: str, count: int) -> bool:
    return await gateway.envoy.stat(f"cluster.{pool}.membership_total") == count


async def _served(gateway: Gateway) -> bool:
    return (await gateway.post())[0] == 200
