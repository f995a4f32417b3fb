"""``tidegate serve``: the control plane as a process of its own."""

import asyncio
import socket
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.e2e.stack import ROOT, Process, configuration, fetch, tidegate, until
from tests.envoy_process import running_envoy
from tidegate.config import load
from xds import bootstrap


@pytest.mark.parametrize("key", ["admin.port", "control.xds_port", "control.ext_proc_port"])
def test_a_port_already_taken_is_one_clear_line(tmp_path: Path, key: str) -> None:
    config = configuration([1])
    section, _, name = key.partition(".")
    file = tmp_path / "tidegate.yaml"
    file.write_text(yaml.safe_dump(config))
    with socket.socket() as other:
        other.bind(("127.0.0.1", config[section][name]))
        other.listen()
        done = subprocess.run(
            tidegate("serve", "--config", str(file)), cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"port {config[section][name]} on 127.0.0.1 is taken already" in line
    assert key in line


async def test_a_signal_ends_it_at_once_and_without_a_complaint_although_an_envoy_is_connected(tmp_path: Path) -> None:
    config = configuration([1])
    file = tmp_path / "tidegate.yaml"
    file.write_text(yaml.safe_dump(config))
    process = Process(tidegate("serve", "--config", str(file)), tmp_path / "serve.log")
    text = bootstrap.render(load(file), bootstrap.template())
    try:
        async with running_envoy(text, config["envoy"]["admin_port"]):
            # A request, so that the stream of the access log is open too.
            until(lambda: "msg=ready" in process.log.read_text(), 20, "it is ready")
            await asyncio.to_thread(_ask, config["listener"]["port"])
            began = time.monotonic()
            assert await asyncio.to_thread(process.stop) == 0
            assert time.monotonic() - began < 0.9
    finally:
        process.kill()
    log = process.log.read_text()
    assert "envoy left" in log
    assert "level=error" not in log
    assert "Traceback" not in log


def _ask(port: int) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    assert fetch(f"http://127.0.0.1:{port}/v1/chat/completions", body)[0] == 503, "there is no engine"
    time.sleep(0.5)  # until the entry about it was sent
