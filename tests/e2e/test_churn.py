"""Two hundred changes of the configuration, of every kind, while requests flow: none of them costs one."""

import asyncio
from collections import Counter
from collections.abc import Mapping

import pytest

from tests.e2e.gateway import CHAT, Gateway, eventually, standing, view
from xds import build
from xds.events import Acked, Rejected
from xds.snapshot import Resource, Snapshot
from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ORDER, ROUTE

CHANGES = {"DELTA_GRPC": 200, "GRPC": 60}
IN_A_BATCH = 3

STATISTICS = {
    CLUSTER: "cluster_manager.cds",
    ENDPOINT: "cluster.small",
    LISTENER: "listener_manager.lds",
    ROUTE: "http.inference.rds.inference",
}
"""What Envoy counts updates by; those of a cluster that changes begin anew with it."""


def variants(gateway: Gateway) -> dict[str, tuple[Mapping[str, Resource], ...]]:
    """Return what each type is changed between: whole sets by name, all of which fit together.

    Clusters, listeners and routes are those of configurations that differ; endpoints come, go and change their weights;
    a pool is added and taken away, with its routes.
    """
    first, second = (engine.address for engine in gateway.engines)
    plain = gateway.config
    small, large = plain.pools
    others = (
        plain,
        plain.model_copy(update={"pools": (small.model_copy(update={"engine": "llamacpp"}), large)}),
        plain.model_copy(update={"limits": plain.limits.model_copy(update={"idle_timeout_seconds": 600.0})}),
        plain.model_copy(update={"pools": (small.model_copy(update={"timeout_seconds": 900.0}), large)}),
    )
    built = [build.snapshot(one, [view("small", first, second), view("large", second)]) for one in others]
    places = ((first, second), (second, first), (first,), (first, second, "127.0.0.1:1"))
    assignments = [build.snapshot(plain, [view("small", *some), view("large", second)]) for some in places]
    return {
        type_url: tuple(one.of_type(type_url) for one in (assignments if type_url == ENDPOINT else built))
        for type_url in ORDER
    }


def distinct(sets: tuple[Mapping[str, Resource], ...]) -> list[Mapping[str, Resource]]:
    """Return ``sets`` without those that are like one before them."""
    found = {tuple(sorted((name, one.version) for name, one in some.items())): some for some in sets}
    return list(found.values())


@pytest.mark.parametrize("api_type", CHANGES)
async def test_no_request_is_lost_over_two_hundred_changes_of_every_kind(api_type: str) -> None:
    async with standing(api_type=api_type) as gateway:
        server = gateway.control.server
        gateway.decider.destinations = gateway.engines[0].address
        choices = {type_url: distinct(sets) for type_url, sets in variants(gateway).items()}
        kinds = [type_url for type_url, sets in choices.items() if len(sets) > 1]
        assert {*STATISTICS} <= {*kinds}, "of each of these types there is something to change"
        current = dict.fromkeys(ORDER, 0)
        pushed: Counter[str] = Counter()
        over = asyncio.Event()
        flowing = [asyncio.create_task(flow(gateway, over)) for _ in range(2)]
        try:
            for number in range(CHANGES[api_type]):
                type_url = kinds[number % len(kinds)]
                current[type_url] = (current[type_url] + 1) % len(choices[type_url])
                pushed[type_url] += 1
                sets = (choices[kind][at] for kind, at in current.items())
                server.publish(Snapshot(one for named in sets for one in named.values()))
                await eventually(lambda: server.up_to_date, pause=0.002)
                assert await asyncio.gather(*(ask(gateway) for _ in range(IN_A_BATCH))) == [200] * IN_A_BATCH, number
        finally:
            over.set()
            statuses = sum(await asyncio.gather(*flowing), Counter[int]())
        assert statuses.keys() == {200}, statuses
        rejected = [event for event in gateway.control.events if isinstance(event, Rejected)]
        assert not rejected
        for type_url, counted in STATISTICS.items():
            acked = sum(isinstance(event, Acked) and event.type_url == type_url for event in gateway.control.events)
            assert acked > pushed[type_url], type_url
            assert await gateway.envoy.stat(f"{counted}.update_rejected") == 0
            assert await gateway.envoy.stat(f"{counted}.update_success") > 0
        assert await gateway.envoy.stat("cluster_manager.warming_clusters") == 0
        assert await gateway.envoy.stat("listener_manager.total_listeners_warming") == 0
        assert await gateway.envoy.stat("listener_manager.listener_create_failure") == 0
        assert await gateway.envoy.stat("listener_manager.listener_modified") >= pushed[LISTENER]
        assert await gateway.envoy.stat("cluster_manager.cluster_modified") >= pushed[CLUSTER]


async def flow(gateway: Gateway, over: asyncio.Event) -> Counter[int]:
    statuses: Counter[int] = Counter()
    while not over.is_set():
        statuses[await ask(gateway)] += 1
    return statuses


async def ask(gateway: Gateway) -> int:
    """Send a request on a connection of its own: an idle one ends with the listener that it came by."""
    url = f"http://127.0.0.1:{gateway.config.listener.port}{CHAT}"
    async with gateway.session.post(url, data=b"x" * 100, headers={"connection": "close"}) as response:
        await response.read()
        return response.status
