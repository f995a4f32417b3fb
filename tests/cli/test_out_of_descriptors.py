"""A control plane that may open few files, and whose log goes to a full disk."""

import contextlib
import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import yaml

from tests.e2e.stack import ROOT, fetch, tidegate, until
from tests.ports import free_port

FEW = 256
FULL = Path("/dev/full")
"""A device that takes nothing, where there is one."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """Run one; yield it with the ports of its pages and of its discovery service."""
    admin, xds = free_port(), free_port()
    config = {
        "admin": {"port": admin},
        "control": {"xds_port": xds, "ext_proc_port": free_port()},
        "pools": [{"name": "a", "engine": "none", "endpoints": [{"address": "127.0.0.1:9"}]}],
    }
    file = folder / "tidegate.yaml"
    file.write_text(yaml.safe_dump(config))
    with (FULL if FULL.exists() else folder / "log").open("wb") as output:
        process = subprocess.Popen(
            tidegate("serve", "--config", str(file)),
            cwd=ROOT,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW)),  # noqa: PLW1509
        )
    try:
        until(lambda: _ready(admin), 60, "it is ready")
        yield process, admin, xds
    finally:
        process.kill()
        process.wait()


def _ready(admin: int) -> bool:
    with contextlib.suppress(OSError):
        return fetch(f"http://127.0.0.1:{admin}/readyz", timeout=5)[0] == 200
    return False


def test_neither_connections_beyond_what_may_be_open_nor_a_full_disk_stops_it(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, admin, xds), contextlib.ExitStack() as open_:
        for port in (admin, xds) * FEW:
            client = open_.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        until(lambda: psutil.Process(process.pid).num_fds() >= FEW, 30, "no more may be open")
        open_.close()
        until(lambda: _ready(admin), 60, "it answers again")
        process.terminate()
        assert process.wait(30) == 0
