"""What ``bench.faults`` runs: simulated engines, GPU agents beside them, and two ways to get at them."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import envoy
from bench.processes import NotReady, free_ports, page, started
from bench.sides import ROOT, output
from tests.agent.stub import Orders
from tidegate.config import Config

MODEL = "sim-faults"
START_SECONDS = 60.0
SPEED = "1"
VRAM_BYTES = 80 << 30
"""Of a GPU of the driver's stand-in."""


@dataclass
class Node:
    """A GPU host: one simulated engine, and where ``orders`` are given, an agent on a stand-in for the driver."""

    number: int
    port: int
    folder: Path
    orders: Orders | None = None
    engine: subprocess.Popen[bytes] | None = None
    agent: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """What its agent calls it."""
        return f"gpu-{self.number}.example"

    @property
    def address(self) -> str:
        """Where its engine is."""
        return f"127.0.0.1:{self.port}"

    def start_engine(self) -> None:
        """Start the engine; ``wait`` tells when it is there."""
        options = ["--port", str(self.port), "--model", MODEL, "--speed", SPEED, "--seed", str(self.number)]
        self.engine = _run(["engine", *options], self.folder / f"engine-{self.number}.log")

    def wait(self) -> None:
        """Wait until the engine is healthy.

        Raises:
            NotReady: it does not become so.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(NotReady):
                page(self.port, "/health")
                return
            time.sleep(0.1)
        raise NotReady(f"the engine at {self.address} does not answer")

    def start_agent(self, port: int) -> None:
        """Start its agent, which reports to ``port``."""
        if self.orders is None:
            raise NotReady(f"{self.name} has no driver")
        options = ["--control", f"127.0.0.1:{port}", "--node", self.name, "--interval", "0.5"]
        options += ["--engine", f"http://{self.address}"]
        self.agent = _run(["agent", *options], self.folder / f"agent-{self.number}.log", self.orders.environment)

    def kill_agent(self) -> None:
        """End its agent at once."""
        _kill(self.agent)

    def kill_engine(self) -> None:
        """End its engine at once."""
        _kill(self.engine)

    def freeze(self) -> None:
        """Stop the engine's process where it is."""
        if self.engine is not None:
            self.engine.send_signal(signal.SIGSTOP)

    def fault(self, **faults: Any) -> None:
        """Have the engine fail so."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", "/fault", json.dumps(faults))
            if (status := connection.getresponse().status) != 200:
                raise NotReady(f"/fault at {self.address} gave {status}")
        finally:
            connection.close()

    def give(self, *orders: str) -> None:
        """Have the driver's stand-in do so."""
        if self.orders is not None:
            self.orders.give("gpus 1", *orders)

    def mend(self) -> None:
        """Have all be well again."""
        self.give()
        if self.engine is not None:
            self.engine.send_signal(signal.SIGCONT)
        if self.engine is None or self.engine.poll() is not None:
            self.start_engine()
            self.wait()
        self.fault(reset=True)


def _run(arguments: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tidegate", *arguments]
    with log.open("ab") as out:
        return subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env=environment or dict(os.environ))


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait()


@contextlib.contextmanager
def nodes(folder: Path, count: int, library: Path | None) -> Iterator[list[Node]]:
    """Run ``count`` engines; there can be agents where the driver's stand-in is built (``library``)."""
    made = [
        Node(number, port, folder, None if library is None else Orders(library, folder / f"orders-{number}"))
        for number, port in enumerate(free_ports(count), 1)
    ]
    try:
        for node in made:
            node.start_engine()
        for node in made:
            node.wait()
        yield made
    finally:
        for node in made:
            node.kill_agent()
            node.kill_engine()


@dataclass(frozen=True, slots=True)
class Way:
    """One way to the engines, running.

    Attributes:
        name: what it is called in the report.
        port: where clients ask.
        envoy_admin: Envoy's admin page.
        admin: Tidegate's; 0 where it is not.
        agents: where agents report; 0 where nobody listens.
    """

    name: str
    port: int
    envoy_admin: int
    admin: int = 0
    agents: int = 0

    def hosts(self) -> dict[str, "Host"]:
        """Return the endpoints that Envoy has, by address, as it is with them."""
        clusters = json.loads(page(self.envoy_admin, "/clusters?format=json"))["cluster_statuses"]
        (pool,) = (one for one in clusters if one["name"] in ("default", "engines"))
        return {host.address: host for host in map(Host.of, pool.get("host_statuses", ()))}

    def left_out(self) -> set[str]:
        """Return the endpoints that get nothing by decision."""
        if not self.admin:
            return {host.address for host in self.hosts().values() if host.unhealthy}
        (pool,) = json.loads(page(self.admin, "/status"))["pools"]
        return {one["address"] for one in pool["endpoints"] if one["ejected"] or one.get("circuit", 0) == OPEN}


OPEN = 3
"""How the status page says that a breaker is open."""


@dataclass(frozen=True, slots=True)
class Host:
    """How it is with one endpoint, as Envoy tells.

    Attributes:
        address: ``ip:port``.
        requests: how many it was sent, or was to be sent and could not be connected for.
        errors: to how many it answered with 5xx, or nothing.
        unhealthy: by Envoy's own judgement.
    """

    address: str
    requests: int
    errors: int
    unhealthy: bool

    @classmethod
    def of(cls, status: dict[str, Any]) -> "Host":
        """Read it out of Envoy's page."""
        place = status["address"]["socket_address"]
        figures = {one["name"]: int(one.get("value", 0)) for one in status["stats"]}
        health = status.get("health_status", {})
        flags = ("failed_active_health_check", "failed_outlier_check")
        return cls(
            f"{place['address']}:{place['port_value']}",
            figures.get("rq_total", 0) + figures.get("cx_connect_fail", 0),
            figures.get("rq_error", 0),
            any(health.get(flag, False) for flag in flags),
        )


@contextlib.contextmanager
def envoy_alone(folder: Path, fleet: Sequence[Node]) -> Iterator[Way]:
    """Run Envoy by itself, with all that it has against sick endpoints."""
    admin, port = free_ports(2)
    config = folder / "envoy.json"
    config.write_text(envoy.guarded(admin, port, [node.port for node in fleet]))
    with started("Envoy", envoy.command(config, 1), folder / "envoy.log") as running:
        running.wait_for(port, "/v1/models", START_SECONDS)
        yield Way("Envoy alone", port, admin)


@contextlib.contextmanager
def tidegate(folder: Path, fleet: Sequence[Node], policy: str) -> Iterator[Way]:
    """Run the control plane, and an Envoy that gets everything from it; agents where there are drivers."""
    listener, admin, xds, ext_proc, envoy_admin, agents = free_ports(6)
    heard = "agents" in Config.model_fields and all(node.orders is not None for node in fleet)
    config = folder / "tidegate.yaml"
    config.write_text(settings((listener, admin, xds, ext_proc, envoy_admin, agents), fleet, policy, heard=heard))
    command = [sys.executable, "-m", "tidegate"]
    with contextlib.ExitStack() as stack:
        serve = [*command, "serve", "--config", str(config)]
        control = stack.enter_context(started("tidegate serve", serve, folder / "serve.log", cwd=ROOT))
        control.wait_for(admin, "/readyz", START_SECONDS)
        bootstrap = folder / "bootstrap.yaml"
        bootstrap.write_text(output([*command, "bootstrap", "--config", str(config)]))
        proxy = stack.enter_context(started("Envoy", envoy.command(bootstrap, 1), folder / "proxy.log"))
        proxy.wait_for(listener, "/v1/models", START_SECONDS)
        yield Way("Tidegate", listener, envoy_admin, admin, agents if heard else 0)


def settings(ports: Sequence[int], fleet: Sequence[Node], policy: str, *, heard: bool) -> str:
    """Return Tidegate's configuration: its defaults, but for what a test needs. JSON is YAML."""
    listener, admin, xds, ext_proc, envoy_admin, agents = ports
    endpoints = [{"address": node.address} | ({"node": node.name} if heard else {}) for node in fleet]
    pool: dict[str, Any] = {"name": "default", "engine": "vllm", "policy": policy, "endpoints": endpoints}
    if heard:
        # The simulated engines have no VRAM; the driver's stand-in says how full it is.
        pool["vram"] = {"judged": "headroom"}
    return json.dumps(
        {
            "listener": {"port": listener},
            "admin": {"port": admin},
            "control": {"xds_port": xds, "ext_proc_port": ext_proc},
            "envoy": {"admin_port": envoy_admin, "concurrency": 1},
            **({"agents": {"port": agents}} if heard else {}),
            "pools": [pool],
        }
    )
