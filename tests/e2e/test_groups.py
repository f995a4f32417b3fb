"""Several Envoys of different groups at one control plane."""

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.apart import apart
from tests.e2e.echoing_engine import echoing
from tests.e2e.gateway import Gateway, eventually, standing, view
from tests.e2e.stack import ROOT, configuration, tidegate, until
from tests.ports import free_port
from tidegate.config import Config
from xds import build
from xds.events import Rejected

CHAT, CODE = "sim-chat", "sim-code"


def grouped(chat: int, code: int) -> dict[str, Any]:
    """Return a configuration in which the edge serves both pools and sidecars one; strangers get nothing."""
    config = configuration(())
    del config["envoy"]
    config["pools"] = [
        {"name": name, "models": [model], "engine": "none", "endpoints": [{"address": f"127.0.0.1:{port}"}]}
        for name, model, port in (("chat", CHAT, chat), ("code", CODE, code))
    ]
    edge = {"name": "edge", "match": {"id": "edge-*"}, "listener": {"port": free_port()}}
    sidecar = {
        "name": "sidecar",
        "match": {"metadata": {"role": "sidecar"}},
        "listener": {"port": free_port()},
        "pools": ["chat"],
    }
    config["envoys"] = {"groups": [edge, sidecar], "others": "refuse"}
    return config


def test_two_envoys_of_different_groups_each_get_their_own_and_a_stranger_gets_nothing(tmp_path: Path) -> None:
    with echoing() as chat, echoing() as code, apart(tmp_path, grouped(chat, code)) as parts:
        parts.start()
        edge, sidecar = parts.envoy("edge", "edge-7"), parts.envoy("sidecar", "pod-1")
        text = edge.file.read_text()
        stranger = parts.with_bootstrap(text.replace("edge-7", "stranger").replace(edge.admin[-5:], "0"), free_port())
        for one in (edge, sidecar, stranger):
            one.start()
        until(lambda: edge.ready() and sidecar.ready(), 60, "both have their configuration")

        assert edge.pools() == {"chat", "code"}
        assert sidecar.pools() == {"chat"}
        assert (edge.ask(CHAT)[0], edge.ask(CODE)[0], sidecar.ask(CHAT)[0]) == (200, 200, 200)
        status, answer = sidecar.ask(CODE)
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        until(lambda: {*parts.clients()} == {"edge-7", "pod-1"}, 20, "the stranger has left")
        assert {one: said["group"] for one, said in parts.clients().items()} == {"edge-7": "edge", "pod-1": "sidecar"}

        until(lambda: parts.total("tidegate_xds_refused_streams_total") > 0, 20, "the stranger is counted")
        assert "no group of Envoys takes the node 'stranger'" in (tmp_path / "serve.log").read_text()
        assert stranger.process is not None
        assert stranger.process.process.poll() is None
        said = subprocess.run(
            tidegate("xds", "--admin", parts.admin[7:]), cwd=ROOT, capture_output=True, check=True, text=True
        )
        rows = {tuple(line.split()[:2]) for line in said.stdout.splitlines() if "delta" in line}
        assert rows == {("edge-7", "edge"), ("pod-1", "sidecar")}
        until(lambda: parts.total("tidegate_inflight_requests") == 0, 20, "nothing stays reserved for what was refused")


async def test_an_envoy_that_comes_into_another_group_listens_and_serves_as_that_one_does() -> None:
    async with standing() as gateway:
        first, second = (engine.address for engine in gateway.engines)
        gateway.decider.destinations = first
        assert await gateway.served_by() == gateway.engines[0].port
        before, port = gateway.clients, free_port()
        group = {"name": "moved", "match": {"id": "envoy"}, "listener": {"port": port}, "pools": ("small",)}
        listener = gateway.config.listener.model_copy(update={"port": port})
        moved = Config.model_validate({**gateway.config.model_dump(), "envoys": {"groups": (group,)}})
        server = gateway.control.server
        server.publish_groups(build.groups(moved, [view("small", first, second), view("large", first)]))
        await eventually(lambda: server.up_to_date and server.standings()[0].group == "moved")
        assert not [event for event in gateway.control.events if isinstance(event, Rejected)]
        gateway.config = gateway.config.model_copy(update={"listener": listener})
        assert gateway.clients != before
        await eventually(lambda: _served(gateway))
        gateway.decider.pool = "large"
        assert (await gateway.post())[0] == 404
        assert await gateway.envoy.stat("cluster_manager.cluster_removed") == 1


async def _served(gateway: Gateway) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        return (await gateway.post())[0] == 200
    return False
