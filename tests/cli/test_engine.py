"""``tidegate engine`` as a process."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.ports import free_port
from tidegate.cli.engine import command

ROOT = Path(__file__).parents[2]


@contextmanager
def _engine(*options: str) -> Iterator["subprocess.Popen[str]"]:
    arguments = [sys.executable, "-m", "tidegate", "engine", *options]
    with subprocess.Popen(arguments, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                assert answer.status == 200
                return
        except OSError:
            time.sleep(0.05)
    pytest.fail("the engine does not listen")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_engines_with_a_stream_under_way(number: signal.Signals) -> None:
    first, second = free_port(), free_port()
    with _engine("--port", str(first), "--port", str(second), "--profile", "h100", "--profile", "rtx4090") as process:
        _wait_for(first)
        _wait_for(second)
        request = urllib.request.Request(
            f"http://127.0.0.1:{first}/v1/completions",
            b'{"prompt":"x","max_tokens":9999,"ignore_eos":true,"stream":true}',
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as stream:
            assert stream.readline().startswith(b"data: ")
            process.send_signal(number)
            assert process.wait(10) == 0
        assert process.stderr is not None
        log = process.stderr.read()
    assert f'msg="simulated engine started" address=127.0.0.1:{first} profile=h100' in log
    assert f'msg="simulated engine started" address=127.0.0.1:{second} profile=rtx4090' in log
    assert f'msg="simulated engine stopped" address=127.0.0.1:{second}' in log
    assert "Traceback" not in log


def test_a_port_that_is_taken_is_one_line_and_status_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with _engine("--port", str(free_port()), "--port", str(port)) as process:
            _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors == f"tidegate engine: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_a_fault_can_kill_the_process_at_once() -> None:
    port = free_port()
    with _engine("--port", str(port)) as process:
        _wait_for(port)
        with pytest.raises(OSError, match=r"closed|reset"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/fault", b'{"die": true}', timeout=10)
        assert process.wait(10) == 1
        assert process.stderr is not None
        assert 'msg="faults changed"' in process.stderr.read()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "--port"),
        (
            ("--port", "1", "--port", "2", "--port", "3", "--profile", "h100", "--profile", "a100"),
            "2 profiles for 3 ports; expected one",
        ),
        (("--port", "1", "--profile", "tpu"), "h100"),
        (("--port", "1", "--num-gpu-blocks", "10", "--max-model-len", "1000"), "expected 1 to 144"),
        (("--port", "1", "--speed", "0"), "--speed"),
        (("--port", "1", "--fail-rate", "2"), "--fail-rate"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused_with_status_2(options: tuple[str, ...], expected: str) -> None:
    result = CliRunner().invoke(command, options)
    assert result.exit_code == 2
    assert expected in result.output


def test_its_log_lines_are_json_when_asked() -> None:
    port = free_port()
    with _engine("--port", str(port), "--log-format", "json") as process:
        _wait_for(port)
        process.terminate()
        _, errors = process.communicate(timeout=30)
    started, stopped = map(json.loads, errors.splitlines())
    assert (started["msg"], started["address"]) == ("simulated engine started", f"127.0.0.1:{port}")
    assert (stopped["msg"], stopped["address"]) == ("simulated engine stopped", f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    "options",
    [
        ["--port", "1", "--port", "2", "--kv-events-port", "3"],
        ["--port", "1", "--kv-events-replay-port", "3"],
    ],
)
def test_each_engine_has_ports_of_its_own_for_kv_events(options: list[str]) -> None:
    result = CliRunner().invoke(command, options)
    assert result.exit_code == 2
    assert "as many ports for KV events" in " ".join(result.output.split())


def test_a_port_for_kv_events_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(command, ["--port", str(free_port()), "--kv-events-port", str(port)])
    assert result.exit_code == 1
    assert "cannot publish KV events on 127.0.0.1" in result.output


def test_kv_events_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    result = CliRunner().invoke(command, ["--port", "1", "--kv-events-port", "3"])
    assert result.exit_code == 2
    assert "tidegate[kv-events]" in " ".join(result.output.split())
