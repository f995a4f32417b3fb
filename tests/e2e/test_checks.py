"""Engines that are ill in ways that their pages do not tell, and one that is only busy, behind a real Envoy."""

import contextlib
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.stack import MODEL, Stack, configuration, fetch, start_engine, until, up
from tests.ports import free_port

CHECKS = [
    {"name": "progress", "interval_seconds": 0.2, "still_seconds": 1.5},
    {"name": "http", "interval_seconds": 0.3, "timeout_seconds": 0.5, "fall": 3, "rise": 2},
]


def picks(stack: Stack) -> dict[int, float]:
    """Return how often each engine was picked, by its port."""
    counted = {
        dict(labels)["endpoint"]: value
        for (name, labels), value in stack.metrics().items()
        if name == "tidegate_picks_total"
    }
    return {int(address.rpartition(":")[2]): value for address, value in counted.items()}


def ends_at_some_point(url: str, body: bytes) -> None:
    """Send a request whose answer is nobody's business."""
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(request, timeout=3) as answer:
        answer.read()


@contextlib.contextmanager
def load(stack: Stack) -> Iterator[None]:
    """Send streams all the time, a few at once."""
    over = threading.Event()
    body = f'{{"model": "{MODEL}", "prompt": "hello", "max_tokens": 20, "stream": true}}'.encode()

    def client() -> None:
        while not over.is_set():
            ends_at_some_point(f"{stack.clients}/completions", body)
            time.sleep(0.1)

    clients = [threading.Thread(target=client) for _ in range(6)]
    for one in clients:
        one.start()
    try:
        yield
    finally:
        over.set()
        for one in clients:
            one.join()


def test_frozen_engines_are_left_though_their_sockets_and_pages_answer_and_a_busy_one_stays(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(4)]
    stopped, dead_core, busy, *_ = ports
    processes = {port: start_engine(tmp_path, port) for port in ports}
    config = configuration(ports, policy="least_request")
    config["pools"][0] |= {"checks": CHECKS, "breaker": {"enabled": False}}

    def fault(port: int, **faults: Any) -> None:
        assert fetch(f"http://127.0.0.1:{port}/fault", faults)[0] == 200

    try:
        with up(tmp_path, config) as stack, load(stack):
            until(lambda: len(picks(stack)) == 4, 10, "every engine is picked")
            processes[stopped].process.send_signal(signal.SIGSTOP)
            fault(dead_core, freeze=True, comments=True)
            fault(busy, slow_health=30.0)
            socket.create_connection(("127.0.0.1", stopped), 2).close()
            assert fetch(f"http://127.0.0.1:{dead_core}/health")[0] == 200

            def are_left() -> bool:
                before = picks(stack)
                time.sleep(1.0)
                after = picks(stack)
                return all(after[port] == before[port] for port in (stopped, dead_core))

            until(are_left, 15, "the frozen engines are left")
            before = picks(stack)
            time.sleep(1.0)
            after = picks(stack)
            assert after[busy] > before[busy], "it answers late, and its requests progress"
            assert stack.total("tidegate_engine_checks_total", check="http", finding="busy") > 0
            assert stack.total("tidegate_engine_checks_total", check="progress", finding="failed") > 0
            processes[stopped].process.send_signal(signal.SIGCONT)
            fault(dead_core, reset=True)
            until(lambda: all(count > after[port] for port, count in picks(stack).items()), 15, "all are picked again")
    finally:
        for process in processes.values():
            process.process.send_signal(signal.SIGCONT)
            process.kill()


def ejected(stack: Stack) -> set[int]:
    """Return the ports of the engines that get nothing."""
    figures = {
        dict(labels)["endpoint"]: value
        for (name, labels), value in stack.metrics().items()
        if name == "tidegate_endpoint_ejected"
    }
    return {int(address.rpartition(":")[2]) for address, value in figures.items() if value}


def test_a_frozen_process_is_left_without_a_word_in_the_configuration_and_a_slow_one_is_not(tmp_path: Path) -> None:
    """The slow one's metrics do not come, and none of its requests ends; but it answers when it is asked.

    On a machine that is not short of time it takes 15 seconds (``tests.engines.test_inquiry``).
    """
    ports = [free_port() for _ in range(4)]
    stopped, slow, *_ = ports
    processes = {port: start_engine(tmp_path, port) for port in ports}
    config = configuration(ports, policy="round_robin")
    del config["scrape"]
    try:
        with up(tmp_path, config) as stack, load(stack):
            until(lambda: len(picks(stack)) == 4, 60, "every engine is picked")
            assert fetch(f"http://127.0.0.1:{slow}/fault", {"slow_metrics": True, "slow": 1000.0})[0] == 200
            processes[stopped].process.send_signal(signal.SIGSTOP)
            until(lambda: stopped in ejected(stack), 120, "the frozen one is left")
            assert slow not in ejected(stack)
            _, page, _ = fetch(f"{stack.admin}/endpoint?address=127.0.0.1:{stopped}")
            assert "no_answer" in page["reasons"]
            assert stack.total("tidegate_engine_checks_total", check="progress", finding="timed_out") >= 3
    finally:
        for process in processes.values():
            process.process.send_signal(signal.SIGCONT)
            process.kill()
