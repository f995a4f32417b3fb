"""Where requests go, and what happens when an endpoint or a client goes away."""

import http.client
import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.stack import MODEL, Stack, configuration, engines, start_engine, until, up
from tests.ports import free_port


def _open_stream(stack: Stack, content: str, tokens: int) -> http.client.HTTPConnection:
    """Send a streamed request and return the connection once the answer has begun."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.config["listener"]["port"], timeout=60)
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
    }
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    return connection


def _served_by(headers: dict[str, str]) -> str:
    return headers["x-served-by"]


def test_the_least_loaded_endpoint_by_tokens_is_chosen(tmp_path: Path) -> None:
    """One endpoint holds one huge prompt, the other a few small ones: small requests go to the latter."""
    with engines(tmp_path, "rtx4090", "rtx4090") as ports, up(tmp_path, configuration(ports)) as stack:
        huge = _open_stream(stack, "word " * 20_000, 4000)
        until(lambda: stack.total("tidegate_inflight_requests", pool="default") == 1, 5, "the huge one is in flight")
        busy = next(
            dict(labels)["endpoint"]
            for (name, labels), value in stack.metrics().items()
            if name == "tidegate_inflight_tokens" and value > 10_000
        )
        small = [_open_stream(stack, "hello", 400) for _ in range(5)]
        until(lambda: stack.total("tidegate_inflight_requests", pool="default") == 6, 5, "the small ones are in flight")
        assert stack.total("tidegate_inflight_requests", endpoint=busy) == 1
        for _ in range(5):
            status, _, headers = stack.ask("hello", max_tokens=2)
            assert status == 200
            assert _served_by(headers) != busy
        for connection in [huge, *small]:
            connection.close()
        until(lambda: stack.inflight() == {}, 5, "all are released")


def test_a_client_that_disconnects_releases_its_reservation_within_a_second(tmp_path: Path) -> None:
    with engines(tmp_path, "rtx4090") as ports, up(tmp_path, configuration(ports)) as stack:
        connection = _open_stream(stack, "hello", 4000)
        answer = connection.getresponse()
        assert answer.read(10)
        assert stack.total("tidegate_inflight_requests", pool="default") == 1
        assert connection.sock is None or connection.sock.close() is None
        answer.close()
        connection.close()
        left = time.monotonic()
        until(lambda: stack.total("tidegate_inflight_requests", pool="default") == 0, 1.0, "it is released")
        assert time.monotonic() - left < 1.0
        assert stack.total("tidegate_reservations_expired_total") == 0


def test_a_killed_engine_costs_no_request_but_those_it_was_answering(tmp_path: Path) -> None:
    survivor, victim = free_port(), free_port()
    processes = {port: start_engine(tmp_path, port) for port in (survivor, victim)}
    try:
        with up(tmp_path, configuration([survivor, victim], policy="round_robin")) as stack:
            until(lambda: stack.total("tidegate_endpoint_up") == 2, 10, "both are up")
            statuses: list[int] = []
            stop = threading.Event()

            def ask() -> None:
                while not stop.is_set():
                    statuses.append(stack.ask(max_tokens=1)[0])

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(0.5)
            # Nothing is being answered at this moment only by chance: so the in-flight ones of the victim may fail.
            answering = stack.total("tidegate_inflight_requests", endpoint=f"127.0.0.1:{victim}")
            processes[victim].kill()
            until(lambda: stack.total("tidegate_endpoint_up") == 1, 10, "the killed one is known to be down")
            asked_when_down = len(statuses)
            until(lambda: len(statuses) > asked_when_down + 20, 20, "requests go on")
            stop.set()
            for thread in threads:
                thread.join()
            failed = [status for status in statuses if status != 200]
            assert len(failed) <= max(answering, len(threads)), failed
            assert len(statuses) > 40
            processes[victim] = start_engine(tmp_path, victim)
            until(lambda: stack.total("tidegate_endpoint_up") == 2, 20, "it is back")
            until(
                lambda: _served_by(stack.ask(max_tokens=1)[2]).endswith(str(victim)),
                20,  # it is held back for five seconds, and calm for three
                "the one that is back serves again",
            )
    finally:
        for process in processes.values():
            process.kill()


def test_a_reloaded_file_adds_an_endpoint_that_then_gets_traffic(tmp_path: Path) -> None:
    with engines(tmp_path, "h100", "h100") as ports, up(tmp_path, configuration(ports[:1])) as stack:
        new = f"127.0.0.1:{ports[1]}"
        assert all(_served_by(stack.ask(max_tokens=1)[2]) != new for _ in range(6))
        stack.config["pools"][0]["endpoints"].append({"address": new})
        stack.write_config()
        until(lambda: _served_by(stack.ask(max_tokens=1)[2]) == new, 10, "the new endpoint serves")
        assert stack.total("tidegate_config_reloads_total", result="success") == 1

        stack.config["pools"][0]["policy"] = "magic"
        stack.write_config()
        until(
            lambda: stack.total("tidegate_config_reloads_total", result="failure") == 1, 10, "the bad file is refused"
        )
        assert "pools[0].policy" in stack.log()
        assert stack.total("tidegate_config_last_reload_success") == 0
        assert stack.ask()[0] == 200

        stack.config["pools"][0]["policy"] = "round_robin"
        stack.config["pools"][0]["endpoints"].pop(0)
        stack.write_config()
        until(
            lambda: stack.total("tidegate_config_reloads_total", result="success") == 2, 10, "the mended file is taken"
        )
        until(lambda: all(_served_by(stack.ask(max_tokens=1)[2]) == new for _ in range(6)), 10, "the old one is gone")


def test_a_hangup_signal_reloads_the_file(tmp_path: Path) -> None:
    with engines(tmp_path, "h100") as ports, up(tmp_path, configuration(ports)) as stack:
        stack.child("serve").send_signal(signal.SIGHUP)
        until(lambda: stack.total("tidegate_config_reloads_total", result="success") == 1, 5, "it is read again")
        assert stack.ask()[0] == 200
        stack.config["control"]["xds_port"] = free_port()
        stack.write_config()
        until(lambda: stack.total("tidegate_config_reloads_total", result="failure") == 1, 5, "a restart is needed")
        assert "control: cannot change while running" in stack.log()


def test_a_storm_of_clients_that_leave_at_once_leaves_nothing_in_flight(tmp_path: Path) -> None:
    """They leave before, while and after the decision is made and the engine answers."""
    with engines(tmp_path, "h100", "h100") as ports, up(tmp_path, configuration(ports)) as stack:

        def leave(number: int) -> None:
            connection = _open_stream(stack, "hello", 300)
            time.sleep(number % 40 / 2000)
            connection.close()

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(leave, range(1500)))
        until(lambda: stack.inflight() == {}, 5, "all are released")
        assert stack.total("tidegate_reservations_expired_total") == 0
        assert stack.ask()[0] == 200
