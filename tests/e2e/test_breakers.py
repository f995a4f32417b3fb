"""Endpoints that fail their requests, with a real Envoy: left within a few failures, tried one at a time, and back."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.e2e.stack import Stack, configuration, engines, fetch, until, up

FAILURES = 3


def fault(port: int, **faults: Any) -> None:
    status, _, _ = fetch(f"http://127.0.0.1:{port}/fault", faults)
    assert status == 200


def health(stack: Stack, address: str) -> str:
    _, status, _ = fetch(f"{stack.admin}/status")
    return next(str(one["health"]) for one in status["pools"][0]["endpoints"] if one["address"] == address)


def answered(stack: Stack, *, heard: bool = True) -> tuple[int, str]:
    """Send a request; return its status and who answered it, once that has been heard of."""
    before = stack.total("tidegate_requests_total") if heard else 0.0
    status, _, headers = stack.ask(max_tokens=2)
    if heard:
        until(lambda: stack.total("tidegate_requests_total") > before, 5, "the end of the request is heard of")
    return status, headers["x-served-by"]


def test_an_engine_that_fails_is_left_and_tried_by_one_request_at_a_time_and_comes_back(tmp_path: Path) -> None:
    with engines(tmp_path, "h100", "h100", "h100") as ports, ThreadPoolExecutor(12) as clients:
        sick = f"127.0.0.1:{ports[1]}"
        config = configuration(ports, policy="round_robin")
        config["health"] = {"hold_seconds": 0.5, "calm_seconds": 0.0, "warm_up_seconds": 0.0}
        config["pools"][0] |= {"retries": 0, "breaker": {"consecutive": FAILURES, "open_seconds": 1.5}}
        with up(tmp_path, config) as stack:
            assert {answered(stack, heard=False)[1] for _ in range(3)} == {f"127.0.0.1:{port}" for port in ports}
            fault(ports[1], fail_rate=1.0)
            seen = [answered(stack) for _ in range(7)]
            failed = [status for status, _ in seen if status != 200]
            assert 1 <= len(failed) <= FAILURES
            assert [where for _, where in seen[-2:]] != [sick, sick]
            assert sick not in {where for status, where in seen if status == 200}

            # Half open, twelve at once: one of them tries it, and fails; all others are served elsewhere.
            until(lambda: health(stack, sick) != "ejected", 10, "it is half open")
            at_once = list(clients.map(lambda _: answered(stack, heard=False), range(12)))
            assert Counter(status for status, _ in at_once) == {200: 11, 500: 1}
            stack.settle()
            assert Counter(status for status, _ in (answered(stack, heard=False) for _ in range(4))) == {200: 4}

            fault(ports[1], reset=True)
            back = [(0, "")]

            def is_back() -> bool:
                back.append(answered(stack))
                return [where for _, where in back[-9:]].count(sick) > 2

            until(is_back, 12, "the engine that recovered gets its share again")
            assert {status for status, _ in back[1:]} == {200}
