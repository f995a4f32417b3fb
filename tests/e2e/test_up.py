"""``tidegate up``: what it says, and what it leaves behind."""

import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import yaml

from tests.e2e.stack import ROOT, configuration, engines, fetch, tidegate, until, up


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_every_process_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with engines(tmp_path, "h100") as ports, up(tmp_path, configuration(ports)) as stack:
        children = psutil.Process(stack.process.process.pid).children(recursive=True)
        assert len(children) == 2, "the control plane and Envoy"
        began = time.monotonic()
        stack.process.process.send_signal(number)
        assert stack.process.process.wait(10) == 0
        assert time.monotonic() - began < 5
        assert [child for child in children if child.is_running()] == []
        assert "Traceback" not in stack.log()


def test_a_killed_up_leaves_no_process_behind(tmp_path: Path) -> None:
    with engines(tmp_path, "h100") as ports, up(tmp_path, configuration(ports)) as stack:
        children = psutil.Process(stack.process.process.pid).children(recursive=True)
        stack.process.process.kill()
        stack.process.process.wait(10)
        until(lambda: not any(child.is_running() for child in children), 5, "the children are gone")


def test_a_killed_up_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not there cannot be deleted under a running Envoy either, which could then never be started again."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with engines(tmp_path, "h100") as ports, up(tmp_path, configuration(ports)) as stack:
        stack.process.kill()
        assert list(temporary.iterdir()) == []


def test_it_says_where_everything_listens_and_what_to_paste(tmp_path: Path) -> None:
    config = configuration([])
    with engines(tmp_path, "h100") as ports:
        config["pools"][0]["endpoints"] = [{"address": f"127.0.0.1:{ports[0]}"}]
        config["pools"][0]["models"] = ["sim-test"]
        with up(tmp_path, config) as stack:
            text = stack.log()
            for port in (config["listener"]["port"], config["admin"]["port"], config["envoy"]["admin_port"], ports[0]):
                assert f":{port}" in text
            commands = re.findall(r"^  (curl .*)$", text, re.MULTILINE)
            assert len(commands) == 3
            for command in commands:
                done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=30, check=True)
                assert done.stdout.strip(), command
            assert (
                '"content"'
                in subprocess.run(
                    commands[0], shell=True, capture_output=True, text=True, timeout=30, check=True
                ).stdout
            )


@pytest.mark.parametrize("section", ["listener", "admin"])
def test_a_port_already_taken_is_one_clear_line(tmp_path: Path, section: str) -> None:
    config = configuration([1])
    with socket.socket() as other:
        other.bind(("127.0.0.1", config[section]["port"]))
        other.listen()
        file = tmp_path / "tidegate.yaml"
        file.write_text(yaml.safe_dump(config))
        done = subprocess.run(
            tidegate("up", "--config", str(file)), cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
        )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert str(config[section]["port"]) in done.stderr
    assert "taken" in done.stderr


def test_a_bad_configuration_is_exit_status_two(tmp_path: Path) -> None:
    file = tmp_path / "tidegate.yaml"
    file.write_text("pools: []\n")
    for command in ("up", "serve", "bootstrap"):
        done = subprocess.run(
            tidegate(command, "--config", str(file)), cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 2
        assert f"{file}: pools" in done.stderr


def test_health_and_readiness_are_told_apart(tmp_path: Path) -> None:
    with engines(tmp_path, "h100") as ports, up(tmp_path, configuration(ports)) as stack:
        assert fetch(f"{stack.admin}/healthz")[0] == 200
        assert fetch(f"{stack.admin}/readyz")[0] == 200
        done = subprocess.run(
            tidegate("status", "--admin", stack.admin.removeprefix("http://")),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert f"127.0.0.1:{ports[0]}" in done.stdout


def test_without_a_configuration_four_simulated_engines_are_served() -> None:
    """The demo binds fixed ports, so this test runs only where they are free."""
    demo_ports = [8080, 9090, 9901, 18000, 18001, 8001, 8002, 8003, 8004]
    for port in demo_ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                pytest.skip(f"port {port} is in use on this machine")
    began = time.monotonic()
    process = subprocess.Popen(tidegate("up"), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not any("tidegate_inflight" in line for line in lines):
            line = process.stdout.readline()
            assert line, "it ended before it said that it is up"
            lines.append(line)
        assert time.monotonic() - began < 30
        body = {"model": "sim-llama-3.1-8b", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
        assert fetch("http://127.0.0.1:8080/v1/chat/completions", body)[0] == 200
        assert sum("127.0.0.1:800" in line for line in lines) >= 4
    finally:
        process.terminate()
        assert process.wait(10) == 0
        process.stdout.close()  # type: ignore[union-attr]
