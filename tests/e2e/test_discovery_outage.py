"""The discovery service is away for a while: nobody notices, neither then nor when it is back."""

import asyncio

from tests.e2e.gateway import eventually, standing
from tests.e2e.test_churn import flow
from xds.events import Pushed, StreamOpened

COUNTED = (
    *("cluster_manager.cluster_added", "cluster_manager.cluster_modified", "cluster_manager.cluster_removed"),
    *("listener_manager.listener_modified", "listener_manager.listener_added", "cluster.small.membership_change"),
)


async def test_when_the_discovery_service_is_back_nothing_is_sent_anew_and_no_request_is_lost() -> None:
    async with standing() as gateway:
        first, second = (engine.address for engine in gateway.engines)
        gateway.decider.destinations = first
        await eventually(lambda: gateway.control.server.up_to_date)
        before = {name: await gateway.envoy.stat(name) for name in COUNTED}
        over = asyncio.Event()
        flowing = asyncio.create_task(flow(gateway, over))
        try:
            await gateway.control.stop()
            await eventually(lambda: len(gateway.decider.bodies) > 20)
            gateway.control.events.clear()
            await gateway.control.start(gateway.snapshot(first, second))
            await eventually(lambda: any(isinstance(event, StreamOpened) for event in gateway.control.events), 40)
            await eventually(lambda: len(gateway.control.server.standings()[0].types) == 4)
            asked = len(gateway.decider.bodies)
            await eventually(lambda: len(gateway.decider.bodies) > asked + 20)
        finally:
            over.set()
            statuses = await flowing
        assert statuses.keys() == {200}, statuses
        assert not [event for event in gateway.control.events if isinstance(event, Pushed)]
        assert {name: await gateway.envoy.stat(name) for name in COUNTED} == before
        assert await gateway.envoy.stat("cluster_manager.warming_clusters") == 0
