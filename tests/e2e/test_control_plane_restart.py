"""The control plane may die: Envoy goes on with what it has."""

import contextlib
import http.client
import json
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.stack import MODEL, Stack, configuration, engines, until, up


@pytest.mark.parametrize("transport", ["grpc", "h2"])
def test_a_killed_control_plane_loses_none_of_twenty_streams(tmp_path: Path, transport: str) -> None:
    config = configuration([])
    config["control"]["ext_proc_transport"] = transport
    with engines(tmp_path, "rtx4090", "rtx4090", options=("--speed", "0.5")) as ports:
        config["pools"][0]["endpoints"] = [{"address": f"127.0.0.1:{port}"} for port in ports]
        with up(tmp_path, config) as stack:
            _kill_under_twenty_streams(stack)


def _kill_under_twenty_streams(stack: Stack) -> None:
    tokens = 120
    results: list[tuple[int, int, bool]] = []

    def stream() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", stack.config["listener"]["port"], timeout=60)
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "tell"}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
        with contextlib.closing(connection):
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
            results.append((answer.status, text.count('"content":"'), text.endswith("data: [DONE]\n\n")))

    threads = [threading.Thread(target=stream) for _ in range(20)]
    for thread in threads:
        thread.start()
    until(lambda: stack.total("tidegate_inflight_requests", pool="default") == 20, 10, "20 streams run")
    control_plane = stack.child("serve")
    control_plane.send_signal(signal.SIGKILL)
    until(lambda: "ended unexpectedly" in stack.log(), 5, "its death is noticed")
    assert not results, "the streams are still running"
    for thread in threads:
        thread.join(60)
    assert len(results) == 20
    assert all(status == 200 and content >= tokens and done for status, content, done in results), results
    until(lambda: _asks(stack) == 200, 15, "a new control plane decides")
    assert stack.child("serve").pid != control_plane.pid
    until(lambda: stack.inflight() == {}, 5, "nothing is in flight")


def test_envoy_goes_on_serving_what_runs_and_refuses_the_rest_while_nobody_decides(tmp_path: Path) -> None:
    with engines(tmp_path, "h100") as ports, up(tmp_path, configuration(ports)) as stack:
        assert stack.ask()[0] == 200
        control_plane = stack.child("serve")
        control_plane.send_signal(signal.SIGSTOP)
        try:
            time.sleep(1.5)  # longer than Envoy's health check and keep-alive of the ext_proc cluster take to notice
            status, answer, _ = stack.ask()
            assert status in {503, 504}
            assert answer["error"]["message"]
        finally:
            control_plane.send_signal(signal.SIGCONT)
        until(lambda: _asks(stack) == 200, 15, "it decides again")


def test_requests_wait_for_a_killed_control_plane_and_are_served(tmp_path: Path) -> None:
    with engines(tmp_path, "h100", "h100") as ports, up(tmp_path, configuration(ports)) as stack:
        statuses: list[int] = []
        stop = threading.Event()

        def ask() -> None:
            while not stop.is_set():
                statuses.append(stack.ask(max_tokens=1)[0])

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: len(statuses) > 20, 10, "requests flow")
        stack.child("serve").send_signal(signal.SIGKILL)
        until(lambda: "ended unexpectedly" in stack.log(), 5, "its death is noticed")
        asked = len(statuses)
        until(lambda: len(statuses) > asked + 20, 20, "requests flow again")
        stop.set()
        for thread in threads:
            thread.join(30)
        failed = [status for status in statuses if status != 200]
        assert len(failed) <= len(threads), "only exchanges that the killed process had begun may fail"


def test_without_patience_an_absent_control_plane_is_a_503_at_once(tmp_path: Path) -> None:
    config = configuration([1])
    config["limits"] = {"absence_seconds": 0}
    with engines(tmp_path, "h100") as ports:
        config["pools"][0]["endpoints"] = [{"address": f"127.0.0.1:{ports[0]}"}]
        with up(tmp_path, config) as stack:
            up_itself = psutil.Process(stack.process.process.pid)
            control_plane = stack.child("serve")
            up_itself.suspend()  # so that nobody starts it again
            try:
                control_plane.kill()
                began = time.monotonic()
                status, answer, headers = stack.ask()
                assert status == 503
                assert time.monotonic() - began < 1
                assert answer["error"]["code"] == "service_unavailable"
                assert headers["retry-after"] == "1"
            finally:
                up_itself.resume()
            until(lambda: _asks(stack) == 200, 15, "it decides again")


def _asks(stack: Stack) -> int:
    return stack.ask()[0]
