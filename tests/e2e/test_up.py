"""``tidegate up``: what it says, and what it leaves behind."""

import json
import os
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


def test_a_signal_during_the_start_ends_it_without_a_word_of_readiness(tmp_path: Path) -> None:
    file, log = tmp_path / "tidegate.yaml", tmp_path / "log"
    file.write_text(yaml.safe_dump(configuration([1])))
    with log.open("wb") as output:
        process = subprocess.Popen(tidegate("up", "--config", str(file)), cwd=ROOT, stdout=output, stderr=output)
    until(lambda: "msg=started" in log.read_text(), 20, "the control plane is started")
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    assert "msg=stopped" in log.read_text()
    assert "msg=ready" not in log.read_text()


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


def test_sighup_reads_the_configuration_again(tmp_path: Path) -> None:
    with engines(tmp_path, "h100") as ports, up(tmp_path, configuration(ports)) as stack:
        stack.process.process.send_signal(signal.SIGHUP)
        until(lambda: 'msg="configuration reloaded"' in stack.log(), 5, "it was read again")
        assert stack.ask()[0] == 200


def test_a_terminal_that_is_closed_stops_everything(tmp_path: Path) -> None:
    with engines(tmp_path, "h100") as ports:
        file = tmp_path / "tidegate.yaml"
        file.write_text(yaml.safe_dump(configuration(ports)))
        terminal, inside = os.openpty()
        try:
            command = ["setsid", "--ctty", *tidegate("up", "--config", str(file))]
            process = subprocess.Popen(command, cwd=ROOT, stdin=inside, stdout=inside, stderr=inside)
            os.close(inside)
            said = b""
            while b"Tidegate is up" not in said:
                said += os.read(terminal, 4096)
            children = psutil.Process(process.pid).children(recursive=True)
            assert len(children) == 2, "the control plane and Envoy"
        finally:
            os.close(terminal)
        # 120 is what Python says when, at the end, nobody takes what it still had to print.
        assert process.wait(10) in {0, 120}
        assert [child for child in children if child.is_running()] == []


def test_every_line_of_the_log_is_json_when_asked_also_those_of_envoy(tmp_path: Path) -> None:
    with engines(tmp_path, "h100") as ports:
        file, log = tmp_path / "tidegate.yaml", tmp_path / "log"
        file.write_text(yaml.safe_dump(configuration(ports)))
        command = tidegate("up", "--config", str(file), "--log-format", "json")
        with log.open("wb") as errors:
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        with process.stdout as output:
            assert any("Tidegate is up" in line for line in output)
            process.terminate()
            assert process.wait(10) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert all({"ts", "level", "logger", "msg"} <= line.keys() for line in lines)
    assert {"tidegate.up", "tidegate", "envoy.main"} <= {line["logger"] for line in lines}
    assert (lines[-1]["logger"], lines[-1]["msg"]) == ("tidegate.up", "stopped")


@pytest.mark.parametrize(
    ("command", "section"), [("up", "listener"), ("up", "admin"), ("serve", "admin"), ("serve", "control")]
)
def test_a_port_already_taken_is_one_clear_line(tmp_path: Path, section: str, command: str) -> None:
    config = configuration([1])
    key = "xds_port" if section == "control" else "port"
    with socket.socket() as other:
        other.bind(("127.0.0.1", config[section][key]))
        other.listen()
        file = tmp_path / "tidegate.yaml"
        file.write_text(yaml.safe_dump(config))
        done = subprocess.run(
            tidegate(command, "--config", str(file)), cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
        )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert str(config[section][key]) in done.stderr
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
        assert time.monotonic() - began < 15
        body = {"model": "sim-llama-3.1-8b", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
        assert fetch("http://127.0.0.1:8080/v1/chat/completions", body)[0] == 200
        assert sum("127.0.0.1:800" in line for line in lines) >= 4
    finally:
        process.terminate()
        assert process.wait(10) == 0
        process.stdout.close()  # type: ignore[union-attr]
