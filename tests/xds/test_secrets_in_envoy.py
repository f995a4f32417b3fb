"""Secrets in a real Envoy, in both variants of the protocol, and from files that it reads itself."""

import asyncio
import functools
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509

from tests.authority import Authority
from tests.envoy_process import running_envoy
from tests.ports import free_port
from tests.volumes import Volume
from tests.xds.fleets import config, pool
from tests.xds.test_server import serving, until
from tidegate import pem
from tidegate.config import Config
from xds import bootstrap, build
from xds.events import DiscoveryEvent, Pushed, Rejected
from xds.secrets import Material
from xds.server import DiscoveryServer
from xds.snapshot import Snapshot
from xds.type_urls import ROUTE, SECRET


def configured(volume: Volume, read_by: str) -> Config:
    files = {"certificate": str(volume.certificate), "key": str(volume.key), "client_ca": str(volume.ca)}
    return config(
        "a",
        listener={"port": free_port(), "tls": {**files, "client_certificate": "optional", "read_by": read_by}},
        control={"xds_port": free_port(), "ext_proc_port": free_port()},
        envoy={"admin_port": free_port()},
    )


def trusted(volume: Volume) -> dict[str, pem.Authorities]:
    return {f"listener_client_ca:{volume.ca}": pem.authorities(str(volume.ca))}


def snapshot(of: Config, volume: Volume) -> Snapshot:
    paths = [str(path) for path in (volume.certificate, volume.key)]
    material = Material(
        {f"listener_certificate:{paths[0]}": pem.identity(*paths)},
        trusted(volume),
    )
    return build.snapshot(of, [pool("a", {})], material)


def asked_for(server: DiscoveryServer) -> set[str]:
    return {kind.type_url for one in server.standings() for kind in one.types}


def pushed(seen: Sequence[DiscoveryEvent]) -> list[str]:
    """Return the types of what was pushed; a push is told of when it is written, which Envoy may be faster than."""
    return [event.type_url for event in seen if isinstance(event, Pushed)]


def mismatched(of: Config, volume: Volume) -> Snapshot:
    """Return a snapshot with a key of another certificate, which Tidegate would not send."""
    name = f"listener_certificate:{volume.certificate}"
    found = pem.identity(str(volume.certificate), str(volume.key))
    volume.renew()
    return build.snapshot(
        of, [pool("a", {})], Material({name: found._replace(key=volume.key.read_bytes())}, trusted(volume))
    )


async def shown(port: int, serial: str) -> None:
    """Wait until new connections are shown the certificate with this serial number."""
    async with asyncio.timeout(60):
        while True:
            asked = functools.partial(ssl.get_server_certificate, ("127.0.0.1", port), timeout=20)
            try:
                text = await asyncio.to_thread(asked)
            except OSError:
                text = ""  # it has no certificate to show yet
            if text and f"{x509.load_pem_x509_certificate(text.encode()).serial_number:x}" == serial:
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("api_type", ["DELTA_GRPC", "GRPC"])
async def test_a_renewed_certificate_is_one_push_of_secrets(tmp_path: Path, api_type: str) -> None:
    volume = Volume(tmp_path / "volume", Authority(tmp_path))
    of = configured(volume, "tidegate")
    seen: list[DiscoveryEvent] = []
    server = DiscoveryServer(seen.append)
    server.publish(snapshot(of, volume))
    text = bootstrap.render(of, bootstrap.template().replace("DELTA_GRPC", api_type))
    async with serving(server, of.control.xds_port), running_envoy(text, of.envoy.admin_port) as envoy:
        await shown(of.listener.port, volume.serial)
        for _ in range(2):
            # Envoy may show a certificate a moment before it has asked for, and answered, all else.
            await until(lambda: server.up_to_date and {ROUTE, SECRET} <= asked_for(server))
            before = len(pushed(seen))
            volume.renew()
            server.publish(snapshot(of, volume))
            await shown(of.listener.port, volume.serial)
            await until(lambda before=before: len(pushed(seen)) > before)
            assert {*pushed(seen)[before:]} == {SECRET}
        assert not [event for event in seen if isinstance(event, Rejected)]
        good = volume.serial
        server.publish(mismatched(of, volume))
        await until(lambda: [event for event in seen if isinstance(event, Rejected)])
        await shown(of.listener.port, good)
        volume.renew()
        server.publish(snapshot(of, volume))
        await shown(of.listener.port, volume.serial)
        assert await envoy.stat("listener_manager.listener_modified") == 0


async def test_envoy_takes_its_own_files_over_when_their_folder_is_swapped(tmp_path: Path) -> None:
    volume = Volume(tmp_path / "volume", Authority(tmp_path))
    of = configured(volume, "envoy")
    server = DiscoveryServer(lambda _: None)
    server.publish(build.snapshot(of, [pool("a", {})]))
    text = bootstrap.render(of, bootstrap.template())
    async with serving(server, of.control.xds_port), running_envoy(text, of.envoy.admin_port) as envoy:
        await shown(of.listener.port, volume.serial)
        good = volume.serial
        volume.renew(key=b"broken")
        await shown(of.listener.port, good)
        await shown(of.listener.port, volume.renew())
        assert await envoy.stat("listener_manager.listener_modified") == 0


async def test_a_listener_whose_secret_is_missing_gets_it_later(tmp_path: Path) -> None:
    volume = Volume(tmp_path / "volume", Authority(tmp_path))
    of = configured(volume, "tidegate")
    server = DiscoveryServer(lambda _: None)
    server.publish(build.snapshot(of, [pool("a", {})]))
    text = bootstrap.render(of, bootstrap.template())
    async with serving(server, of.control.xds_port), running_envoy(text, of.envoy.admin_port, wait=False):
        await until(lambda: SECRET in asked_for(server))
        server.publish(snapshot(of, volume))
        await shown(of.listener.port, volume.serial)
