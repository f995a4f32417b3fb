"""What can go wrong between Envoy and the decision, and that no request reaches an engine because of it."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.e2e.gateway import CHAT, Gateway, eventually, standing
from xds.snapshot import Resource, Snapshot
from xds.type_urls import CLUSTER, ORDER


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with standing() as running:
        running.decider.destinations = running.engines[1].address
        yield running


async def test_without_the_cluster_of_the_decision_nothing_reaches_an_engine(gateway: Gateway) -> None:
    whole = gateway.snapshot(*(engine.address for engine in gateway.engines))
    without = [
        resource
        for type_url in ORDER
        for resource in whole.of_type(type_url).values()
        if (type_url, resource.name) != (CLUSTER, "tidegate_ext_proc")
    ]
    with pytest.raises(ValueError, match="tidegate_ext_proc, which does not exist"):
        gateway.control.server.publish(Snapshot(without))
    assert (await gateway.post())[0] == 200, "the last good snapshot goes on"
    for engine in gateway.engines:
        engine.seen.clear()
    # And if it got there all the same, as the deed of somebody else:
    gateway.control.server.publish(Snapshot([_unreferring(resource) for resource in without]))

    async def gone() -> bool:
        return "tidegate_ext_proc" not in await gateway.envoy.get("/clusters")

    await eventually(gone)
    for _ in range(3):
        status, answer = await gateway.post()
        assert (status, answer["error"]["type"]) == (503, "server_error")
    assert not any(engine.seen for engine in gateway.engines)
    gateway.control.server.publish(whole)

    async def served() -> bool:
        return (await gateway.post())[0] == 200

    await eventually(served)


def _unreferring(resource: Resource) -> Resource:
    return Resource(resource.type_url, resource.name, resource.body)


async def _decide_within(gateway: Gateway, seconds: float) -> None:
    """Have Envoy wait for decisions for as long."""
    limits = gateway.config.limits.model_copy(update={"decision_timeout_seconds": seconds})
    gateway.config = gateway.config.model_copy(update={"limits": limits})
    gateway.control.server.publish(gateway.snapshot(*(engine.address for engine in gateway.engines)))
    await eventually(lambda: gateway.control.server.up_to_date)
    await asyncio.sleep(0.5)


async def test_more_decisions_may_wait_at_once_than_envoy_lets_wait_by_default(gateway: Gateway) -> None:
    waiting = 1_200
    await _decide_within(gateway, 120.0)  # on a busy machine it takes a while until all are there
    gateway.decider.gate = asyncio.Event()
    url = f"http://127.0.0.1:{gateway.config.listener.port}{CHAT}"
    connector = aiohttp.TCPConnector(limit=0)

    async with aiohttp.ClientSession(connector=connector) as session:

        async def one() -> int:
            async with session.post(url, data=b"{}") as response:
                await response.read()
                return response.status

        asked = [asyncio.create_task(one()) for _ in range(waiting)]
        try:
            await eventually(lambda: len(gateway.decider.bodies) >= waiting, 90)
        finally:
            gateway.decider.gate.set()
        statuses = await asyncio.gather(*asked)

    assert set(statuses) == {200}


async def test_a_decider_that_hangs_is_given_up_with_504_and_asked_again_for_the_next(gateway: Gateway) -> None:
    await _decide_within(gateway, 0.5)
    gateway.decider.gate = asyncio.Event()

    status, answer = await gateway.post()

    assert (status, answer["error"]["code"]) in {(504, "timeout"), (503, "service_unavailable")}
    assert not any(engine.seen for engine in gateway.engines)
    gateway.decider.gate.set()
    assert (await gateway.post())[0] == 200
