"""``tidegate picker`` as a process of its own."""

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.e2e.stack import ROOT, Process, fetch, tidegate, until
from tests.ports import free_port
from tidegate.runtime.picker import HEALTH_NAMES

SERVING = health_pb2.HealthCheckResponse.SERVING


def configuration(**picker: Any) -> dict[str, Any]:
    return {
        "admin": {"port": free_port()},
        "control": {"xds_port": free_port(), "ext_proc_port": free_port()},
        "picker": {"health_port": free_port(), **picker},
        "pools": [{"name": "default", "engine": "none", "endpoints": [{"address": "127.0.0.1:1"}]}],
    }


def test_tenants_are_refused_whom_nobody_would_ask(tmp_path: Path) -> None:
    file = tmp_path / "tidegate.yaml"
    file.write_text(yaml.safe_dump({**configuration(), "tenants": [{"name": "acme"}]}))
    done = subprocess.run(
        tidegate("picker", "--config", str(file)), cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert "tenants: expected none for a picker" in done.stderr


@pytest.mark.parametrize("key", ["admin.port", "control.ext_proc_port", "picker.health_port"])
def test_a_port_already_taken_is_one_clear_line(tmp_path: Path, key: str) -> None:
    config = configuration()
    section, _, name = key.partition(".")
    file = tmp_path / "tidegate.yaml"
    file.write_text(yaml.safe_dump(config))
    with socket.socket() as other:
        other.bind(("127.0.0.1", config[section][name]))
        other.listen()
        done = subprocess.run(
            tidegate("picker", "--config", str(file)), cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"port {config[section][name]} on 127.0.0.1 is taken already" in line
    assert key in line


@pytest.mark.parametrize("transport", ["grpc", "h2"])
def test_it_is_healthy_on_both_ports_reloads_and_stops_on_a_signal(tmp_path: Path, transport: str) -> None:
    config = configuration()
    config["control"]["ext_proc_transport"] = transport
    file = tmp_path / "tidegate.yaml"
    file.write_text(yaml.safe_dump(config))
    process = Process(tidegate("picker", "--config", str(file), "--log-format", "json"), tmp_path / "log")
    try:
        until(lambda: '"ready"' in process.log.read_text(), 20, "it is ready")
        for port in (config["control"]["ext_proc_port"], config["picker"]["health_port"]):
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                stub = health_pb2_grpc.HealthStub(channel)
                for name in HEALTH_NAMES:
                    assert stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5).status == SERVING
                with pytest.raises(grpc.RpcError) as caught:
                    stub.Check(health_pb2.HealthCheckRequest(service="other"), timeout=5)
                assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert fetch(f"http://127.0.0.1:{config['admin']['port']}/readyz")[0] == 200
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", config["control"]["xds_port"])) != 0, "no discovery here"

        config["pools"][0]["endpoints"].append({"address": "127.0.0.1:2"})
        file.write_text(yaml.safe_dump(config))
        until(lambda: '"added": "127.0.0.1:2"' in process.log.read_text(), 10, "the new endpoint is known")
        config["picker"]["drain_seconds"] = 1
        file.write_text(yaml.safe_dump(config))
        until(lambda: "picker.drain_seconds" in process.log.read_text(), 10, "what cannot change is refused")
    finally:
        assert process.stop() == 0
    errors = [line for line in process.log.read_text().splitlines() if json.loads(line)["level"] == "error"]
    assert all("picker.drain_seconds" in line for line in errors)
