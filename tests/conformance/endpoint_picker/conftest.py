"""Which picker is tested: one at an address that is given, or ``tidegate picker``, started here."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.conformance.endpoint_picker.picker import REPLY_SECONDS, Picker
from tests.conformance.endpoint_picker.pods import Pod, Pods
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = {
    "address": "ip:port of the picker; without it, tidegate picker is started",
    "health": "ip:port of its gRPC health service, where it is another",
    "pods": "ip:port of three endpoints or more, with commas: the kit serves them",
    "patience": "seconds to wait for a reply; 10, where it does not say",
    "features": "what it can do beyond the protocol, with commas; see README.md",
}
TRANSPORT = os.environ.get("TIDEGATE_TEST_EXT_PROC_TRANSPORT", "h2")
OURS = frozenset({"test-header", "passthrough", "modes", "model-rewrite"})


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("endpoint picker")
    for name, meaning in OPTIONS.items():
        group.addoption(f"--endpoint-picker-{name}", help=meaning)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "feature(name): needs more than the protocol asks for")


def _given(config: pytest.Config, name: str) -> str:
    option = config.getoption(f"--endpoint-picker-{name}", default=None)
    return str(option or os.environ.get(f"ENDPOINT_PICKER_{name.upper()}", ""))


@pytest.fixture(scope="session")
def pods(request: pytest.FixtureRequest) -> Iterator[Pods]:
    """The endpoints that the picker knows."""
    given = _given(request.config, "pods")
    addresses = given.split(",") if given else [f"127.0.0.1:{free_port()}" for _ in range(3)]
    if not given and _has_ipv6():
        addresses.append(f"[::1]:{free_port()}")
    with Pods([Pod(address) for address in addresses]).serving() as serving:
        yield serving


@pytest.fixture(scope="session")
def picker(request: pytest.FixtureRequest, pods: Pods, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Picker]:
    """The picker under test."""
    features = frozenset(filter(None, _given(request.config, "features").split(",")))
    if address := _given(request.config, "address"):
        patience = float(_given(request.config, "patience") or REPLY_SECONDS)
        yield Picker(address, _given(request.config, "health") or address, features, patience)
        return
    folder = tmp_path_factory.mktemp("picker")
    port, health = free_port(), free_port()
    file = folder / "tidegate.yaml"
    file.write_text(yaml.safe_dump(_configuration(pods, port, health)))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegate", "picker", "--config", str(file)], cwd=ROOT, stdout=log, stderr=log
        )
    try:
        _wait(health, process, folder / "log")
        yield Picker(f"127.0.0.1:{port}", f"127.0.0.1:{health}", features or OURS)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(autouse=True)
def _feature(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("feature")
    if marker is not None and marker.args[0] not in request.getfixturevalue("picker").features:
        pytest.skip(f"the picker does not claim the feature {marker.args[0]}")


def _configuration(pods: Pods, port: int, health: int) -> dict[str, object]:
    return {
        "admin": {"port": free_port()},
        "control": {"xds_port": free_port(), "ext_proc_port": port, "ext_proc_transport": TRANSPORT},
        "scrape": {"interval_seconds": 0.05},
        "unknown_paths": {"pool": "default"},
        "picker": {"health_port": health, "test_header": "obey"},
        "pools": [
            {
                "name": "default",
                "engine": "vllm",
                # The default goes by how fast and how reliable the pods were in the tests before, too.
                "policy": "least_tokens",
                "endpoints": [{"address": address} for address in pods.addresses],
            }
        ],
        "routes": [{"model": "model-to-be-rewritten", "pool": "default", "rewrite_model": "rewritten-model"}],
    }


def _has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(log.read_text())
