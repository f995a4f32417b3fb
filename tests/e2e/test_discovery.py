"""Endpoints that are discovered, behind a real Envoy: they come and go, and no request is lost."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.discovery.dns_server import DnsServer
from tests.e2e.holding import REQUEST, HoldingEngine
from tests.e2e.stack import Stack, configuration, engines, fetch, until, up
from tests.e2e.test_reload import asking
from tests.e2e.workers import with_workers

LOOPBACK = {"allow": ["127.0.0.0/8"], "hold_seconds": 1.0, "linger_seconds": 0.0}


def discovering(**discovery: Any) -> dict[str, Any]:
    config = configuration(())
    del config["pools"][0]["endpoints"]
    config["pools"][0]["discovery"] = {**LOOPBACK, **discovery}
    return config


def in_envoy(stack: Stack) -> set[str]:
    """Return the endpoints of the pool that Envoy knows."""
    text = fetch(f"http://127.0.0.1:{stack.config['envoy']['admin_port']}/clusters")[1]
    return {line.split("::")[1] for line in text.splitlines() if line.startswith("default::127.")}


def write(file: Path, *ports: int) -> None:
    write_places(file, *(f"127.0.0.1:{port}" for port in ports))


def write_places(file: Path, *places: str) -> None:
    new = file.with_suffix(".new")
    new.write_text("".join(f'- {{address: "{place}"}}\n' for place in places) or "[]\n")
    new.replace(file)


def test_endpoints_that_a_file_adds_and_removes_cost_no_request(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    with engines(tmp_path, "h100", "h100", "h100") as ports:
        write(file, *ports[:2])
        places = [f"127.0.0.1:{port}" for port in ports]
        with up(tmp_path, discovering(file={"path": str(file)})) as stack:
            assert in_envoy(stack) == {*places[:2]}
            with asking(stack) as statuses:
                for kept in (ports, ports[1:], ports[:2], ports[2:], ports):
                    write(file, *kept)
                    until(lambda k=kept: in_envoy(stack) == {f"127.0.0.1:{port}" for port in k}, 15, str(kept))  # type: ignore[misc]
                    picked = stack.total("tidegate_requests_total")
                    until(lambda p=picked: stack.total("tidegate_requests_total") > p + 20, 15, "requests go on")  # type: ignore[misc]
            assert statuses.keys() == {200}, statuses
            until(lambda: stack.inflight() == {}, 5, "nothing is in flight")

            # A file that cannot be read takes nothing away, and an empty list has to stand for a while.
            file.write_text("- {address: ")
            until(lambda: stack.total("tidegate_discovery_errors_total") > 0, 10, "the fault is counted")
            assert stack.total("tidegate_discovery_stage", stage="failing", pool="default", source="file") == 1
            assert in_envoy(stack) == {*places}
            began = time.monotonic()
            write(file)
            until(lambda: in_envoy(stack) == set(), 15, "the empty list is confirmed")
            assert time.monotonic() - began > 1.0
            assert stack.ask()[0] == 503
            write(file, ports[0])
            until(lambda: stack.ask()[0] == 200, 10, "the pool serves again")
            assert stack.total("tidegate_discovery_endpoints") == 1


@contextlib.contextmanager
def resolving(server: DnsServer) -> Iterator[None]:
    """Run ``server`` in a thread of its own as long as the block."""
    loop, over, ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()

    async def serve() -> None:
        async with server.running():
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()


def services(server: DnsServer, *ports: int) -> None:
    server.records["_llm._tcp.test", "SRV"] = (0, [f"1 1 {port} here.test." for port in ports])


def test_endpoints_that_dns_adds_and_removes_cost_no_request(tmp_path: Path) -> None:
    server = DnsServer()
    server.records["here.test", "A"] = (0, ["127.0.0.1"])
    with resolving(server), engines(tmp_path, "h100", "h100", "h100") as ports:
        services(server, *ports[:2])
        places = [f"127.0.0.1:{port}" for port in ports]
        dns = {"name": "_llm._tcp.test", "records": "srv", "servers": [server.place], "min_seconds": 0.2}
        with up(tmp_path, discovering(dns=dns)) as stack:
            assert in_envoy(stack) == {*places[:2]}
            with asking(stack) as statuses:
                services(server, *ports)
                until(lambda: in_envoy(stack) == {*places}, 15, "the third is added")
                services(server, *ports[1:])
                until(lambda: in_envoy(stack) == {*places[1:]}, 15, "the first is gone")
                server.rcodes["_llm._tcp.test", "SRV"] = "SERVFAIL"
                until(lambda: stack.total("tidegate_discovery_errors_total") > 2, 15, "the failures are counted")
                assert in_envoy(stack) == {*places[1:]}
                # An answer without records comes once between good ones, and nobody notices.
                server.rcodes.clear()
                services(server)
                asked = len(server.asked)
                until(lambda: len(server.asked) > asked, 5, "the empty answer is seen")
                services(server, *ports)
                until(lambda: in_envoy(stack) == {*places}, 15, "all are back")
            assert statuses.keys() == {200}, statuses
            until(lambda: stack.inflight() == {}, 5, "nothing is in flight")


def test_a_restart_while_the_source_is_down_takes_nothing_from_envoy(tmp_path: Path) -> None:
    """The new control plane knows nobody: it is not ready, and says nothing to Envoy, which goes on as it was."""
    file = tmp_path / "endpoints.yaml"
    with engines(tmp_path, "h100") as ports:
        write(file, *ports)
        place = f"127.0.0.1:{ports[0]}"
        with up(tmp_path, discovering(file={"path": str(file)})) as stack:
            file.unlink()
            stack.child("serve").kill()
            until(lambda: _ready(stack)[0] == 503, 20, "the new control plane is up, and not ready")
            assert "the file source of pool default has not been read yet" in str(_ready(stack)[1])
            time.sleep(1.0)
            assert in_envoy(stack) == {place}
            write(file, *ports)
            until(lambda: _ready(stack)[0] == 200, 10, "it is ready")
            assert stack.ask()[0] == 200
            assert in_envoy(stack) == {place}


def test_workers_follow_what_is_discovered(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    with engines(tmp_path, "h100", "h100") as ports:
        write(file, ports[0])
        config = discovering(file={"path": str(file)})
        config["control"] = with_workers(()).pop("control")
        with up(tmp_path, config) as stack, asking(stack) as statuses:
            write(file, ports[1])
            until(lambda: in_envoy(stack) == {f"127.0.0.1:{ports[1]}"}, 20, "the other one is there")
            place = f"127.0.0.1:{ports[1]}"
            until(lambda: stack.total("tidegate_picks_total", endpoint=place) > 20, 20, "it is picked")
        assert statuses.keys() == {200}, statuses


def test_an_answer_that_is_running_ends_on_the_endpoint_that_was_removed(tmp_path: Path) -> None:
    file, leaving = tmp_path / "endpoints.yaml", HoldingEngine()
    config = discovering(file={"path": str(file)})
    config["pools"][0]["engine"] = "none"
    with leaving.running(), engines(tmp_path, "h100") as ports:
        write(file, leaving.port)
        with (
            up(tmp_path, config) as stack,
            socket.create_connection(("127.0.0.1", stack.config["listener"]["port"])) as client,
        ):
            client.settimeout(20)
            client.sendall(REQUEST)
            begun = b""
            while b"data: first" not in begun:
                begun += client.recv(65_536)
            write(file, *ports)
            until(lambda: in_envoy(stack) == {f"127.0.0.1:{ports[0]}"}, 15, "it is gone from Envoy")
            assert stack.ask()[0] == 200, "others serve new requests"
            time.sleep(0.5)
            leaving.release()
            rest = b""
            while part := client.recv(65_536):
                rest += part
            assert b"data: [DONE]" in rest
            stack.settle()
            assert stack.total("tidegate_requests_total", outcome="ok") == 2


def _ready(stack: Stack) -> tuple[int, Any]:
    try:
        return fetch(f"{stack.admin}/readyz", timeout=2)[:2]
    except OSError:
        return 0, ""
