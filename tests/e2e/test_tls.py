"""Decisions, discovery and the access log over TLS, with a real Envoy that has a certificate, and one that has not."""

import json
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.authority import Authority, tls
from tests.e2e.gateway import eventually
from tests.e2e.stack import Process, configuration, engines, fetch, tidegate, until, up
from tests.envoy_process import EnvoyProcess, running_envoy
from tidegate.config import Config
from xds import bootstrap


@pytest.mark.parametrize("transport", ["grpc", "h2"])
def test_a_request_is_decided_and_logged_over_tls(tmp_path: Path, transport: str) -> None:
    with engines(tmp_path, "h100") as ports:
        config = configuration(ports)
        config["control"]["ext_proc_transport"] = transport
        config["control"]["tls"] = tls(Authority(tmp_path, "ours"), Authority(tmp_path, "theirs"))
        with up(tmp_path, config) as stack:
            status, answer, _ = stack.ask()
            assert status == 200, answer
            until(lambda: stack.total("tidegate_requests_total", outcome="ok") == 1, 10, "the request is logged")
            used = _handshakes(config["envoy"]["admin_port"])
            for cluster in ("xds", "tidegate_ext_proc", "tidegate_access_log"):
                assert used(cluster) > 0, cluster


async def test_an_envoy_of_another_authority_is_told_nothing(tmp_path: Path) -> None:
    config = configuration([1])
    files = tls(Authority(tmp_path, "ours"), Authority(tmp_path, "theirs"))
    config["control"]["tls"] = files
    (tmp_path / "tidegate.yaml").write_text(yaml.safe_dump(config))
    serve = Process(tidegate("serve", "--config", str(tmp_path / "tidegate.yaml")), tmp_path / "serve.log")
    try:
        until(lambda: "msg=ready" in serve.log.read_text(), 20, "the control plane serves")
        stranger, key = Authority(tmp_path, "strangers").issue("stranger")
        files["envoy"] |= {"certificate": str(stranger), "key": str(key)}
        text = bootstrap.render(Config.model_validate_json(json.dumps(config)), bootstrap.template())
        async with running_envoy(text, config["envoy"]["admin_port"], wait=False) as envoy:
            await eventually(lambda: _tried(envoy))
            # Over TLS 1.3 it is connected, from where it stands, until the server has looked at its certificate.
            assert await envoy.stat("cluster_manager.cluster_added") == 1  # the one that its bootstrap names
            assert await envoy.stat("listener_manager.listener_added") == 0
    finally:
        serve.kill()


async def _tried(envoy: EnvoyProcess) -> bool:
    try:
        return await envoy.stat("cluster.xds.upstream_cx_total") >= 2
    except aiohttp.ClientError:
        return False


def _handshakes(admin_port: int) -> Callable[[str], int]:
    def count(cluster: str) -> int:
        _, text, _ = fetch(f"http://127.0.0.1:{admin_port}/stats?filter=^cluster.{cluster}.ssl.handshake$")
        return int(str(text).rpartition(": ")[2] or 0)

    return count
