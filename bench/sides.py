"""What a comparison runs: the engines' stand-in, and the ways to reach it."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import envoy
from bench.load import chat_bodies
from bench.processes import NotReady, free_ports, started

ROOT = Path(__file__).resolve().parent.parent
CHAT = "/v1/chat/completions"
START_SECONDS = 30.0
BOOTSTRAP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Side:
    """One way to the engines, running.

    Attributes:
        name: what it is called in the report.
        port: where it listens on 127.0.0.1.
        pids: its processes by role: ``envoy``, and ``control`` where one decides.
        admin_port: where Tidegate's own pages are; 0 where it is not.
    """

    name: str
    port: int
    pids: Mapping[str, int]
    admin_port: int = 0


@contextmanager
def engines(folder: Path, count: int) -> Iterator[tuple[int, list[int]]]:
    """Run ``count`` endpoints in one Envoy; give its process number and the endpoints' ports."""
    admin, *ports = free_ports(count + 1)
    config = folder / "engines.json"
    config.write_text(envoy.engine(admin, ports))
    with started("the engines' Envoy", envoy.command(config, 1), folder / "engines.log") as running:
        running.wait_for(ports[-1], CHAT, START_SECONDS, body=chat_bodies(200, 1, 0)[0])
        yield running.process.pid, ports


@contextmanager
def plain(folder: Path, name: str, endpoint_ports: Sequence[int], threads: int) -> Iterator[Side]:
    """Run Envoy with a static configuration."""
    admin, port = free_ports(2)
    config = folder / f"{name}.json"
    config.write_text(envoy.plain(admin, port, endpoint_ports))
    with started(f"Envoy ({name})", envoy.command(config, threads), folder / f"{name}.log") as running:
        running.wait_for(port, CHAT, START_SECONDS, body=chat_bodies(200, 1, 0)[0])
        yield Side(name, port, {"envoy": running.process.pid})


@contextmanager
def bare(folder: Path, name: str, endpoint_ports: Sequence[int], threads: int) -> Iterator[Side]:
    """Run an ext_proc that answers at once, and Envoy with a static configuration that asks it."""
    admin, port, ext_proc = free_ports(3)
    config = folder / f"{name}.json"
    config.write_text(envoy.bare(admin, port, endpoint_ports, ext_proc))
    serve = [sys.executable, "-m", "bench.bare_ext_proc", "--port", str(ext_proc)]
    serve += ["--destination", f"127.0.0.1:{endpoint_ports[0]}"]
    with ExitStack() as stack:
        control = stack.enter_context(started("the bare ext_proc", serve, folder / f"{name}-ext-proc.log", cwd=ROOT))
        proxy = stack.enter_context(started(f"Envoy ({name})", envoy.command(config, threads), folder / f"{name}.log"))
        proxy.wait_for(port, CHAT, START_SECONDS, body=chat_bodies(200, 1, 0)[0])
        yield Side(name, port, {"envoy": proxy.process.pid, "control": control.process.pid})


@contextmanager
def tidegate(
    folder: Path, name: str, endpoint_ports: Sequence[int], threads: int, policy: str, transport: str = "h2"
) -> Iterator[Side]:
    """Run the control plane, and an Envoy that gets everything from it."""
    folder = folder / name
    folder.mkdir()
    ports = free_ports(5)
    listener, admin = ports[:2]
    config = folder / "tidegate.yaml"
    config.write_text(tidegate_settings(ports, endpoint_ports, threads, policy, transport))
    command = [sys.executable, "-m", "tidegate"]
    with ExitStack() as stack:
        serve = [*command, "serve", "--config", str(config)]
        control = stack.enter_context(started("tidegate serve", serve, folder / "tidegate.log", cwd=ROOT))
        control.wait_for(admin, "/readyz", START_SECONDS)
        bootstrap = folder / "bootstrap.yaml"
        bootstrap.write_text(output([*command, "bootstrap", "--config", str(config)]))
        run_envoy = envoy.command(bootstrap, threads)
        proxy = stack.enter_context(started("Envoy (tidegate)", run_envoy, folder / f"{name}.log"))
        proxy.wait_for(listener, CHAT, START_SECONDS, body=chat_bodies(200, 1, 0)[0])
        yield Side(name, listener, {"envoy": proxy.process.pid, "control": control.process.pid}, admin)


def tidegate_settings(
    ports: Sequence[int], endpoint_ports: Sequence[int], threads: int, policy: str, transport: str = "h2"
) -> str:
    """Return Tidegate's configuration; JSON is YAML.

    Args:
        ports: of the listener, the admin pages, xDS, ext_proc and Envoy's admin page.
        endpoint_ports: where the engines are.
        threads: Envoy's worker threads.
        policy: how Tidegate chooses.
        transport: what serves ext_proc.
    """
    listener, admin, xds, ext_proc, envoy_admin = ports
    pool = {
        "name": "default",
        "engine": "none",  # its load is not asked for: the stand-in has no metrics
        "policy": policy,
        "endpoints": [{"address": f"127.0.0.1:{port}"} for port in endpoint_ports],
    }
    return json.dumps(
        {
            "listener": {"port": listener},
            "admin": {"port": admin},
            "control": {"xds_port": xds, "ext_proc_port": ext_proc, "ext_proc_transport": transport},
            "envoy": {"admin_port": envoy_admin, "concurrency": threads},
            "pools": [pool],
        }
    )


def output(command: Sequence[str]) -> str:
    """Return what ``command`` prints.

    Raises:
        NotReady: it fails, or takes longer than ``BOOTSTRAP_SECONDS``.
    """
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BOOTSTRAP_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NotReady(f"{' '.join(command)} did not end within {BOOTSTRAP_SECONDS:g} s") from None
    if done.returncode != 0:
        raise NotReady(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout
