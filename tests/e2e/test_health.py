"""What endpoints' health does to real requests through a real Envoy."""

import socket
from pathlib import Path
from typing import Any

from tests.e2e.holding import REQUEST, HoldingEngine
from tests.e2e.stack import Stack, configuration, engines, fetch, start_engine, until, up
from tests.ports import free_port


def weights(stack: Stack) -> dict[str, int]:
    """Return the endpoints that Envoy knows, and their weights."""
    text = fetch(f"http://127.0.0.1:{stack.config['envoy']['admin_port']}/clusters")[1]
    lines = [line.split("::") for line in text.splitlines() if line.startswith("default::127.")]
    return {line[1]: int(line[3]) for line in lines if line[2] == "weight"}


def events(stack: Stack, address: str = "") -> list[str]:
    page = fetch(f"{stack.admin}/events")[1]
    return [one["event"] for one in page["events"] if one["address"] == address]


def standing(stack: Stack, address: str) -> dict[str, Any]:
    page: dict[str, Any] = fetch(f"{stack.admin}/endpoint?address={address}")[1]
    return page


def test_an_ejected_endpoint_gets_no_request_and_its_streams_finish(tmp_path: Path) -> None:
    leaving = HoldingEngine()
    with leaving.running(), engines(tmp_path, "h100", "h100") as ports:
        place = f"127.0.0.1:{leaving.port}"
        config = configuration([leaving.port], policy="round_robin", engine="none")
        with up(tmp_path, config) as stack:
            with socket.create_connection(("127.0.0.1", stack.config["listener"]["port"])) as client:
                client.sendall(REQUEST)
                until(lambda: leaving.held == 1, 10, "the stream is open")
                config["pools"][0]["endpoints"] += [{"address": f"127.0.0.1:{port}"} for port in ports]
                stack.write_config()
                until(lambda: len(weights(stack)) == 3, 10, "the others are there")
                leaving.stop_listening()
                until(lambda: events(stack, place) == ["ejected"], 10, "it is ejected")
                until(lambda: place not in weights(stack), 5, "Envoy knows it no more")
                before = stack.total("tidegate_picks_total", endpoint=place)
                assert [stack.ask(max_tokens=1)[0] for _ in range(12)] == [200] * 12
                assert stack.total("tidegate_picks_total", endpoint=place) == before
                assert stack.total("tidegate_retries_total") == 0
                found = standing(stack, place)
                assert (found["status"], found["reasons"]) == ("ejected", ["unreachable"])
                leaving.release()
                client.settimeout(10)
                answer = b"".join(iter(lambda: client.recv(65536), b""))
            assert b"data: [DONE]" in answer


def test_when_all_look_sick_nobody_is_ejected_and_it_is_said_aloud(tmp_path: Path) -> None:
    with engines(tmp_path, "h100", "h100") as ports:
        config = configuration(ports, policy="round_robin")
        config["pools"][0]["checks"] = [{"name": "http", "path": "/nowhere", "interval_seconds": 0.2, "fall": 1}]
        with up(tmp_path, config) as stack:
            until(lambda: "panic" in events(stack), 15, "panic")
            assert "pool panic" in stack.log()
            assert stack.total("tidegate_pool_panic", pool="default") == 1
            assert len(weights(stack)) == 2
            assert [stack.ask(max_tokens=1)[0] for _ in range(6)] == [200] * 6


def test_one_that_comes_back_is_held_and_then_gets_its_share_little_by_little(tmp_path: Path) -> None:
    dying = free_port()
    place = f"127.0.0.1:{dying}"
    with engines(tmp_path, "h100") as ports:
        config = configuration([*ports, dying], policy="least_tokens")
        config["health"] = {"hold_seconds": 1, "calm_seconds": 0.5, "warm_up_seconds": 4}
        first = start_engine(tmp_path, dying)
        with up(tmp_path, config) as stack:
            until(lambda: stack.total("tidegate_endpoint_up", endpoint=place) == 1, 20, "it is reachable")
            first.kill()
            until(lambda: standing(stack, place)["status"] == "ejected", 10, "it is ejected")
            again = start_engine(tmp_path, dying)
            try:
                shares: list[float] = []

                def is_well() -> bool:
                    told = weights(stack)
                    if place in told:
                        shares.append(told[place] / max(told.values()))
                    return standing(stack, place)["status"] == "healthy" and shares[-1:] == [1.0]

                until(is_well, 30, "it has its whole share")
            finally:
                again.kill()
            assert shares == sorted(shares)
            assert shares[0] <= 0.3
            assert len(set(shares)) > 3
            assert events(stack, place)[:3] == ["ejected", "warming", "healthy"]
