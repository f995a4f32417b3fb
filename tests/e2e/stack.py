"""A whole Tidegate for a test: engines, ``tidegate up`` with a real Envoy, all on ports of their own."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
MODEL = "sim-test"
TRANSPORT = os.environ.get("TIDEGATE_TEST_EXT_PROC_TRANSPORT", "h2")
"""The transport that these tests run over, unless one says otherwise."""


def tidegate(*arguments: str) -> list[str]:
    """Return the command line of ``tidegate`` as it stands in this source tree."""
    return [sys.executable, "-m", "tidegate", *arguments]


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for ``condition``, at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def fetch(url: str, body: Mapping[str, Any] | None = None, timeout: float = 30.0) -> tuple[int, Any, dict[str, str]]:
    """Return status, decoded JSON (or text) and headers of a GET, or of a POST when there is a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            status, raw, headers = answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            status, raw, headers = error.code, error.read(), dict(error.headers)
    text = raw.decode()
    with contextlib.suppress(ValueError):
        return status, json.loads(text), headers
    return status, text, headers


@dataclass
class Process:
    """A child process whose output goes to a file."""

    command: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(10)
        finally:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def engines(folder: Path, *profiles: str, options: Sequence[str] = ()) -> Iterator[list[int]]:
    """Run one simulated engine per profile, each in a process of its own; yield their ports."""
    ports = [free_port() for _ in profiles]
    processes = [start_engine(folder, port, profile, options) for port, profile in zip(ports, profiles, strict=True)]
    try:
        for port in ports:
            until(functools.partial(_healthy, f"http://127.0.0.1:{port}/health"), 60, f"engine {port} is up")
        yield ports
    finally:
        for process in processes:
            process.kill()


def start_engine(folder: Path, port: int, profile: str = "h100", options: Sequence[str] = ()) -> Process:
    """Start one simulated engine."""
    command = tidegate("engine", "--port", str(port), "--profile", profile, "--model", MODEL, *options)
    return Process(command, folder / f"engine-{port}.log")


def _healthy(url: str) -> bool:
    try:
        return fetch(url, timeout=2)[0] == 200
    except OSError:
        return False


@dataclass
class Stack:
    """A running ``tidegate up``."""

    folder: Path
    config: dict[str, Any]
    process: Process

    @property
    def clients(self) -> str:
        """The URL that clients use, up to and with ``/v1``."""
        return f"http://127.0.0.1:{self.config['listener']['port']}/v1"

    @property
    def admin(self) -> str:
        """The URL of Tidegate's own pages."""
        return f"http://127.0.0.1:{self.config['admin']['port']}"

    @property
    def config_file(self) -> Path:
        """The configuration file."""
        return self.folder / "tidegate.yaml"

    def log(self) -> str:
        """What the stack has printed so far."""
        return self.process.log.read_text()

    def child(self, word: str) -> psutil.Process:
        """Return the child process of ``tidegate up`` whose command line holds ``word``."""
        found = [
            child for child in psutil.Process(self.process.process.pid).children() if word in " ".join(child.cmdline())
        ]
        assert len(found) == 1, f"{word}: {found}"
        return found[0]

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Return all samples of ``/metrics`` by name and labels."""
        _, text, _ = fetch(f"{self.admin}/metrics")
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples called ``name`` that bear ``labels``; 0 when there is none."""
        return sum(
            value
            for (sample, its), value in self.metrics().items()
            if sample == name and labels.items() <= dict(its).items()
        )

    def inflight(self) -> dict[str, float]:
        """Return every in-flight gauge that is not zero."""
        return {
            f"{name}{dict(labels)}": value
            for (name, labels), value in self.metrics().items()
            if "inflight" in name and value != 0
        }

    def settle(self) -> None:
        """Wait until every request that is over has been counted."""
        seen = -1.0
        deadline = time.monotonic() + 10
        while (now := self.total("tidegate_requests_total")) != seen or self.inflight():
            assert time.monotonic() < deadline, self.inflight()
            seen = now
            time.sleep(0.4)

    def ask(self, content: str = "hello", **body: Any) -> tuple[int, Any, dict[str, str]]:
        """Send one chat request."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 8, **body}
        return fetch(f"{self.clients}/chat/completions", body)

    def write_config(self) -> None:
        """Write the configuration file anew, at once for whoever reads it."""
        new = self.config_file.with_suffix(".new")
        new.write_text(yaml.safe_dump(self.config))
        new.replace(self.config_file)


def configuration(engine_ports: Sequence[int], policy: str = "least_tokens", engine: str = "vllm") -> dict[str, Any]:
    """Return a configuration on free ports with one pool of the engines at ``engine_ports``.

    Whoever joins, or comes back, has its whole share at once.
    """
    return {
        "listener": {"port": free_port()},
        "admin": {"port": free_port()},
        "control": {"xds_port": free_port(), "ext_proc_port": free_port(), "ext_proc_transport": TRANSPORT},
        "envoy": {"admin_port": free_port(), "concurrency": 1},
        "scrape": {"interval_seconds": 0.2},
        "health": {"warm_up_seconds": 0},
        "pools": [
            {
                "name": "default",
                "engine": engine,
                "models": ["*"],
                "policy": policy,
                "endpoints": [{"address": f"127.0.0.1:{port}"} for port in engine_ports],
            }
        ],
    }


@contextlib.contextmanager
def up(folder: Path, config: dict[str, Any]) -> Iterator[Stack]:
    """Run ``tidegate up --config`` with ``config``; yield it once it has said that it is up."""
    file = folder / "tidegate.yaml"
    file.write_text(yaml.safe_dump(config))
    process = Process(tidegate("up", "--config", str(file)), folder / "up.log")
    stack = Stack(folder, config, process)
    try:
        until(
            lambda: "Tidegate is up" in stack.log() or process.process.poll() is not None,
            90,
            "tidegate up says it is up",
        )
        assert process.process.poll() is None, stack.log()
        yield stack
    finally:
        process.stop()
