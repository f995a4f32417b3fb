"""The part that follows certificates: what it hands on, and what it says."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from tests.authority import Authority, tls
from tests.configurations import parsed
from tidegate.config import Config
from tidegate.discovery import static
from tidegate.fleet.events import PoolsDeclared
from tidegate.runtime.certificates import Certificates, named
from xds import build
from xds.type_urls import SECRET


def configured(folder: Path) -> Config:
    authority, clients = Authority(folder, "ours"), Authority(folder, "clients")
    certificate, key = authority.issue("edge")
    mine, my_key = authority.issue("to-engines")
    to = {"ca": str(clients.certificate), "server_name": "engine.internal"}
    data: dict[str, Any] = {
        "listener": {
            "tls": {"certificate": str(certificate), "key": str(key), "client_ca": str(clients.certificate)},
        },
        "control": {"tls": tls(authority, clients)},
        "pools": [
            {"name": "a", "models": ["a"], "endpoints": [{"address": "10.0.0.1:1"}], "tls": to},
            {
                "name": "b",
                "models": ["b"],
                "endpoints": [{"address": "10.0.0.2:1"}],
                "tls": {**to, "certificate": str(mine), "key": str(my_key)},
            },
            {"name": "c", "models": ["c"], "endpoints": [{"address": "10.0.0.3:1"}]},
        ],
    }
    return parsed(data)


def made() -> tuple[Certificates, CollectorRegistry]:
    registry = CollectorRegistry()
    return Certificates(registry, lambda: None), registry


def declared(config: Config) -> PoolsDeclared:
    return static.declared(config)


def test_envoy_is_sent_what_it_is_to_show_and_to_trust(tmp_path: Path) -> None:
    config = configured(tmp_path)
    material = made()[0].material(config)
    assert sorted(material.identities) == [f"listener_certificate:{tmp_path}/edge.pem", "pool_b_certificate"]
    assert sorted(material.authorities) == [f"listener_client_ca:{tmp_path}/clients.pem", "pool_a_ca", "pool_b_ca"]
    snapshot = build.snapshot(config, [], material)
    own = {"envoy_certificate", "envoy_ca"}
    assert {*snapshot.of_type(SECRET)} == {*material.identities, *material.authorities} | own
    secrets = [line for line in snapshot.consistent() if "Secret" in line]
    assert secrets == []


def test_one_broken_file_keeps_nothing_else_from_envoy(tmp_path: Path) -> None:
    config = configured(tmp_path)
    (tmp_path / "to-engines.key").write_text("broken")
    material = made()[0].material(config)
    assert {*material.identities} == {f"listener_certificate:{tmp_path}/edge.pem"}
    missing = build.snapshot(config, [], material).consistent()
    assert not [line for line in missing if "Secret" in line]


def test_every_certificate_has_its_end_on_the_page(tmp_path: Path) -> None:
    config = configured(tmp_path)
    part, registry = made()
    part.follow(config, declared(config))
    page = generate_latest(registry).decode()
    for source in named(config):
        assert f'tidegate_certificate_expiry_timestamp_seconds{{name="{source.name}"}} ' in page
        assert f'tidegate_certificate_refused{{name="{source.name}"}} 0.0' in page
    assert {"control.tls.certificate", "pools.b.tls.ca"} <= {source.name for source in named(config)}


def test_engines_of_pools_with_tls_are_connected_to_so(tmp_path: Path) -> None:
    config = configured(tmp_path)
    part, _ = made()
    to = part.to_engines(config, declared(config))
    assert sorted(to) == ["10.0.0.1:1", "10.0.0.2:1"]
    assert to["10.0.0.1:1"].server_name == "engine.internal"
    part.follow(config, declared(config))
    assert part.to_engines(config, declared(config))["10.0.0.1:1"] is to["10.0.0.1:1"]


async def test_what_is_renewed_is_sent_and_used(tmp_path: Path) -> None:
    config, renewed = configured(tmp_path), asyncio.Event()
    part = Certificates(CollectorRegistry(), renewed.set)
    part.follow(config, declared(config))
    to = part.to_engines(config, declared(config))["10.0.0.2:1"]
    context, before = to.context, part.material(config)
    Authority(tmp_path, "again").issue("to-engines")
    running = asyncio.create_task(part.run())
    try:
        async with asyncio.timeout(60):
            await renewed.wait()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert part.material(config).identities["pool_b_certificate"] != before.identities["pool_b_certificate"]
    assert to.context is not context
