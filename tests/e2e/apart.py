"""A control plane and Envoys as processes of their own, each of which may be killed and started again."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.stack import MODEL, Process, fetch, tidegate, until
from tests.envoy_process import envoy_binary
from tests.ports import free_port
from tidegate.config import Config
from xds import bootstrap

GONE = (OSError, http.client.HTTPException)
"""What asking somebody comes to who is not there, or is killed meanwhile."""


@dataclass
class Edge:
    """One Envoy."""

    file: Path
    log: Path
    admin: str
    clients: str
    process: Process | None = None

    def start(self) -> None:
        """Start it; whether it becomes ready is another matter."""
        options = ("--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning")
        self.process = Process([str(envoy_binary()), "-c", str(self.file), *options], self.log)

    def kill(self) -> None:
        """Kill it and wait for its end."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    def ready(self) -> bool:
        """Tell whether it has all that it waits for."""
        with contextlib.suppress(*GONE):
            return str(fetch(f"{self.admin}/ready", timeout=5)[1]).strip() == "LIVE"
        return False

    def members(self, pool: str = "default") -> set[str]:
        """Return the endpoints of ``pool`` that it knows."""
        lines = fetch(f"{self.admin}/clusters", timeout=5)[1].splitlines()
        return {line.split("::")[1] for line in lines if line.startswith(f"{pool}::127.")}

    def pools(self) -> set[str]:
        """Return the clusters that it knows and that are not Tidegate's own."""
        lines = fetch(f"{self.admin}/clusters")[1].splitlines()
        return {name for name in (line.split("::")[0] for line in lines) if "_" not in name and name != "xds"}

    def ask(self, model: str = MODEL) -> tuple[int, Any]:
        """Send one chat request; 0 stands for none that came to an answer."""
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
        with contextlib.suppress(*GONE):
            return fetch(f"{self.clients}/v1/chat/completions", body)[:2]
        return 0, None


@dataclass
class Apart:
    """The control plane, and what it serves."""

    folder: Path
    config: dict[str, Any]
    control: Process | None = None
    edges: list[Edge] = field(default_factory=list)

    @property
    def admin(self) -> str:
        """The URL of Tidegate's own pages."""
        return f"http://127.0.0.1:{self.config['admin']['port']}"

    def start(self) -> None:
        """Start the control plane and wait until it is ready."""
        file = self.folder / "tidegate.yaml"
        file.write_text(yaml.safe_dump(self.config))
        self.control = Process(tidegate("serve", "--config", str(file)), self.folder / "serve.log")
        until(self._ready, 60, "the control plane is ready")

    def kill(self) -> None:
        """Kill the control plane and wait for its end."""
        if self.control is not None:
            self.control.kill()
            self.control = None

    def _ready(self) -> bool:
        with contextlib.suppress(*GONE):
            return fetch(f"{self.admin}/readyz", timeout=5)[0] == 200
        return False

    def envoy(self, group: str | None = None, node_id: str = "") -> Edge:
        """Return an Envoy of ``group``, which is not started yet, with an admin page of its own."""
        port = free_port()
        wanted = Config.model_validate_json(json.dumps({**self.config, "envoy": {"admin_port": port}}))
        text = bootstrap.render(wanted, bootstrap.template(), wanted.envoys.node(group, node_id))
        return self.with_bootstrap(text, port, next((one for one in wanted.envoys.groups if one.name == group), None))

    def with_bootstrap(self, text: str, admin_port: int, group: Any = None) -> Edge:
        """Return an Envoy on the bootstrap ``text``."""
        listener = self.config["listener"]["port"] if group is None or group.listener is None else group.listener.port
        file = self.folder / f"envoy-{admin_port}.yaml"
        file.write_text(text)
        log = self.folder / f"envoy-{admin_port}.log"
        edge = Edge(file, log, f"http://127.0.0.1:{admin_port}", f"http://127.0.0.1:{listener}")
        self.edges.append(edge)
        return edge

    def clients(self) -> dict[str, dict[str, Any]]:
        """Return what the control plane says of its Envoys, by their ids."""
        return {one["node"]: one for one in fetch(f"{self.admin}/xds")[1]["clients"]}

    def total(self, name: str) -> float:
        """Return the sum of the samples of a metric."""
        lines = fetch(f"{self.admin}/metrics")[1].splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


@contextlib.contextmanager
def apart(folder: Path, config: dict[str, Any]) -> Iterator[Apart]:
    """Yield the parts, none of which is started; whatever is at the end is killed."""
    parts = Apart(folder, config)
    try:
        yield parts
    finally:
        for edge in parts.edges:
            edge.kill()
        parts.kill()
