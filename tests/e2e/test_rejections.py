"""What a real Envoy refuses, of every type: said once and everywhere, sent once, and in the way of nothing else."""

import datetime as dt
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from envoy_data_plane.envoy.config.cluster import v3 as cluster
from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.config.listener import v3 as listener
from envoy_data_plane.envoy.config.route import v3 as route
from envoy_data_plane.envoy.extensions.transport_sockets.tls import v3 as tls

from protos import core_pb2, endpoint_pb2
from tests.e2e.gateway import PORT_70000, Gateway, eventually, standing
from tests.e2e.test_churn import over_tls
from tidegate.runtime.discovery_log import DiscoveryLog
from tidegate.runtime.xds_clients import XdsClients
from tidegate.telemetry.metrics import Metrics
from xds.events import Acked, DiscoveryEvent, Pushed, Rejected
from xds.snapshot import Resource, Snapshot
from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ORDER, ROUTE, SECRET, short

_NOWHERE = core_pb2.Address(socket_address=core_pb2.SocketAddress(address="127.0.0.1", port_value=70_000))
_MEMBER = endpoint_pb2.LbEndpoint(endpoint=endpoint_pb2.Endpoint(address=_NOWHERE))
_LOCALITY = endpoint_pb2.LocalityLbEndpoints(lb_endpoints=[_MEMBER])
_EVERYBODYS = route.VirtualHost(name="again", domains=["*"])

_NO_KEY = core.DataSource(inline_string="-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")

BAD: Mapping[str, bytes] = {
    SECRET: bytes(tls.Secret(tls_certificate=tls.TlsCertificate(private_key=_NO_KEY))),
    CLUSTER: bytes(cluster.Cluster(connect_timeout=dt.timedelta(seconds=-1))),
    ENDPOINT: endpoint_pb2.ClusterLoadAssignment(endpoints=[_LOCALITY]).SerializeToString(),
    LISTENER: PORT_70000,
    ROUTE: bytes(route.RouteConfiguration(virtual_hosts=[_EVERYBODYS])),
}
"""By type, what spoils a resource when it is appended to its body."""

GOOD: Mapping[str, bytes] = {
    SECRET: bytes(tls.Secret(tls_certificate=tls.TlsCertificate(password=core.DataSource(inline_string="none")))),
    CLUSTER: bytes(cluster.Cluster(connect_timeout=dt.timedelta(seconds=2))),
    ENDPOINT: endpoint_pb2.ClusterLoadAssignment(endpoints=[endpoint_pb2.LocalityLbEndpoints()]).SerializeToString(),
    LISTENER: bytes(listener.Listener(stat_prefix="other")),
    ROUTE: bytes(route.RouteConfiguration(internal_only_headers=["x-other"])),
}
"""What makes another version of it that Envoy takes."""


def with_appended(snapshot: Snapshot, type_url: str, name: str, more: bytes) -> Snapshot:
    return Snapshot(
        Resource(one.type_url, one.name, one.body + more, one.references)
        if (one.type_url, one.name) == (type_url, name)
        else one
        for kind in ORDER
        for one in snapshot.of_type(kind).values()
    )


class Watched:
    """What operators see."""

    def __init__(self) -> None:
        self.metrics = Metrics(tuple, int)
        self.observe = DiscoveryLog(self.metrics)
        self.clients: XdsClients

    def metric(self, name: str, type_url: str) -> float:
        line = f'{name}{{type="{short(type_url)}"}} '
        text = self.metrics.render().decode()
        return next((float(one.removeprefix(line)) for one in text.splitlines() if one.startswith(line)), 0.0)

    def refused(self, type_url: str) -> list[dict[str, Any]]:
        page: Any = self.clients.page()
        (client,) = page["clients"]
        refused: list[dict[str, Any]] = next(
            one["refused"] for one in client["types"] if one["type"] == short(type_url)
        )
        return refused


def count(events: list[DiscoveryEvent], kind: type[Acked | Pushed | Rejected], type_url: str) -> int:
    return sum(isinstance(event, kind) and event.type_url == type_url for event in events)


@pytest.mark.parametrize("api_type", ["DELTA_GRPC", "GRPC"])
async def test_what_envoy_refuses_of_any_type_is_parked_and_reported_and_all_else_goes_on(
    api_type: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Watched()
    configure, secrets = over_tls(tmp_path)
    (secret,) = secrets[0].identities
    names = {SECRET: secret, CLUSTER: "small", ENDPOINT: "small", LISTENER: "inference", ROUTE: "inference"}
    with caplog.at_level(logging.ERROR, "tidegate.xds"):
        async with standing(configure, api_type, seen.observe, lambda _: secrets[0]) as gateway:
            seen.clients = XdsClients(gateway.control.server, seen.metrics)
            for type_url in ORDER:
                await _refused_and_recovered_from(gateway, seen, type_url, names[type_url], caplog)


async def _refused_and_recovered_from(
    gateway: Gateway, seen: Watched, type_url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (engine.address for engine in gateway.engines)
    server, events = gateway.control.server, gateway.control.events
    gateway.decider.destinations = first
    server.publish(gateway.snapshot(first, second))
    await eventually(lambda: server.up_to_date)
    events.clear()
    caplog.clear()

    bad = with_appended(gateway.snapshot(first, second), type_url, name, BAD[type_url])
    version = bad.of_type(type_url)[name].version
    server.publish(bad)
    await eventually(lambda: count(events, Rejected, type_url) and server.up_to_date)
    (parked,) = seen.refused(type_url)
    assert (parked["name"], parked["version"]) == (name, version)
    assert parked["reason"]
    assert seen.metric("tidegate_xds_parked", type_url) == 1
    assert seen.metric("tidegate_xds_nacks_total", type_url) == 1
    (line,) = (record for record in caplog.records if record.getMessage() == "envoy rejected configuration")
    assert line.__dict__["fields"]["names"] == name

    # Another type goes on, and the refused version stands in the way of nothing and is not sent again.
    other, another = (ENDPOINT, "large") if type_url != ENDPOINT else (ROUTE, "inference")
    changed = with_appended(bad, other, another, GOOD[other])
    server.publish(changed)
    await eventually(lambda: count(events, Acked, other) and server.up_to_date)
    for _ in range(5):
        assert await gateway.served_by() == gateway.engines[0].port
        server.publish(changed)
    assert (count(events, Pushed, type_url), count(events, Rejected, type_url)) == (1, 1)

    server.publish(good(changed, gateway, type_url, name))
    await eventually(lambda: count(events, Acked, type_url) and server.up_to_date)
    assert seen.refused(type_url) == []
    assert seen.metric("tidegate_xds_parked", type_url) == 0
    assert await gateway.served_by() == gateway.engines[0].port


def good(changed: Snapshot, gateway: Gateway, type_url: str, name: str) -> Snapshot:
    """Return ``changed`` with a new version in place of the refused one."""
    addresses = (engine.address for engine in gateway.engines)
    wanted = with_appended(gateway.snapshot(*addresses), type_url, name, GOOD[type_url]).of_type(type_url)[name]
    rest = [
        one for kind in ORDER for one in changed.of_type(kind).values() if (one.type_url, one.name) != (type_url, name)
    ]
    return Snapshot([*rest, wanted])
