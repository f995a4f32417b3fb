"""Two hundred changes of the configuration, of every kind, while requests flow: none of them costs one."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.authority import Authority
from tests.e2e.gateway import CHAT, Gateway, eventually, standing, view
from tidegate import pem
from tidegate.config import Config
from tidegate.config_tls import ListenerTls
from xds import build
from xds.events import Acked, Rejected
from xds.secrets import Material, listener_certificate
from xds.snapshot import Resource, Snapshot
from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ORDER, SECRET

CHANGES = {"DELTA_GRPC": 200, "GRPC": 60}
IN_A_BATCH = 3

STATISTICS = ("cluster_manager.cds", "cluster.small", "listener_manager.lds", "http.inference.rds.inference")
"""What Envoy counts updates by; those of a cluster that changes begin anew with it."""


def over_tls(folder: Path) -> tuple[Callable[[Config], Config], list[Material]]:
    """Return what has clients come over TLS, and three certificates for that."""
    authority = Authority(folder)
    files = [tuple(map(str, authority.issue(name))) for name in ("first", "second", "third")]
    tls = ListenerTls(certificate=files[0][0], key=files[0][1])
    name = listener_certificate(tls)

    def configure(config: Config) -> Config:
        return config.model_copy(update={"listener": config.listener.model_copy(update={"tls": tls})})

    return configure, [Material({name: pem.identity(*pair)}, {}) for pair in files]


def variants(gateway: Gateway, secrets: Sequence[Material]) -> dict[str, tuple[Mapping[str, Resource], ...]]:
    """Return what each type is changed between: whole sets by name, all of which fit together.

    Clusters, listeners and routes are those of configurations that differ; endpoints come and go, and certificates are
    renewed.
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
    pools = [view("small", first, second), view("large", second)]
    built = [build.snapshot(one, pools) for one in others]
    places = ((first, second), (second, first), (first,), (first, second, "127.0.0.1:1"))
    of_their_own = {
        ENDPOINT: [build.snapshot(plain, [view("small", *some), view("large", second)]) for some in places],
        SECRET: [build.snapshot(plain, pools, some) for some in secrets],
    }
    return {type_url: tuple(one.of_type(type_url) for one in of_their_own.get(type_url, built)) for type_url in ORDER}


def distinct(sets: tuple[Mapping[str, Resource], ...]) -> list[Mapping[str, Resource]]:
    """Return ``sets`` without those that are like one before them."""
    found = {tuple(sorted((name, one.version) for name, one in some.items())): some for some in sets}
    return list(found.values())


@pytest.mark.parametrize("api_type", CHANGES)
async def test_no_request_is_lost_over_two_hundred_changes_of_every_kind(api_type: str, tmp_path: Path) -> None:
    configure, secrets = over_tls(tmp_path)
    async with standing(configure, api_type, material=lambda _: secrets[0]) as gateway:
        server = gateway.control.server
        gateway.decider.destinations = gateway.engines[0].address
        choices = {type_url: distinct(sets) for type_url, sets in variants(gateway, secrets).items()}
        kinds = [type_url for type_url in ORDER if len(choices[type_url]) > 1]
        assert kinds == [*ORDER], "of every type there is something to change"
        current = dict.fromkeys(ORDER, 0)
        pushed: Counter[str] = Counter()
        over = asyncio.Event()
        flowing = asyncio.create_task(flow(gateway, over))
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
            statuses = await flowing
        assert statuses.keys() == {200}, statuses
        rejected = [event for event in gateway.control.events if isinstance(event, Rejected)]
        assert not rejected
        acked = Counter(event.type_url for event in gateway.control.events if isinstance(event, Acked))
        assert all(acked[type_url] > pushed[type_url] for type_url in kinds)
        for counted in STATISTICS:
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
    url, close = gateway.clients + CHAT, {"connection": "close"}
    async with gateway.session.post(url, data=b"x" * 100, headers=close, ssl=False) as response:
        await response.read()
        return response.status
