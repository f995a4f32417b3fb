"""Splits and rollouts through a real Envoy: shares, users who stay, a good canary and a bad one."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.e2e.stack import Stack, configuration, engines, fetch, until, up

FAST = ("--speed", "100", "--mean-output-tokens", "4")


@contextlib.contextmanager
def split(folder: Path, **route: Any) -> Iterator[Stack]:
    """Run a canary and a stable pool of one simulated engine each, with one route that is split between them."""
    with engines(folder, "h100", "h100", options=FAST) as (canary, stable):
        config = configuration([stable])
        (pool,) = config["pools"]
        pool |= {"name": "stable"}
        at = [{"address": f"127.0.0.1:{canary}"}]
        config["pools"].append({**pool, "name": "canary", "models": [], "endpoints": at, "retries": 0})
        sides = [{"pool": "canary", "weight": 10}, {"pool": "stable", "weight": 90}]
        config["routes"] = [{"name": "chat", "model": "*", "split": sides, **route}]
        with up(folder, config) as stack:
            yield stack


def served(stack: Stack) -> Counter[str]:
    stack.settle()
    return Counter({pool: int(stack.total("tidegate_requests_total", pool=pool)) for pool in ("canary", "stable")})


def test_a_thousand_requests_are_shared_out_within_a_hundredth(tmp_path: Path) -> None:
    with split(tmp_path) as stack:
        with ThreadPoolExecutor(16) as clients:
            statuses = Counter(clients.map(lambda _: stack.ask(max_tokens=1)[0], range(1_000)))
        assert statuses == {200: 1_000}
        found = served(stack)
    assert abs(found["canary"] - 100) <= 10
    assert found.total() == 1_000


def test_a_good_canary_gets_all_and_a_bad_one_nothing_and_nobody_else_is_hurt(tmp_path: Path) -> None:
    plan = {"canary": "canary", "steps": [10, 50], "pause_seconds": 2, "min_requests": 5}
    # The two engines share a processor with all else that runs here: their times say nothing.
    plan |= {"max_ttft_ratio": 100, "max_tpot_ratio": 100}
    with split(tmp_path, rollout=plan) as stack, steady(stack) as statuses:

        def rollout() -> dict[str, Any]:
            (page,) = fetch(f"{stack.admin}/rollouts")[1]["rollouts"]
            assert isinstance(page, dict)
            return page

        until(lambda: rollout()["phase"] == "done", 40, "the good canary has all")
        assert set(statuses) == {200}
        fetch(f"{stack.admin}/rollouts", {"route": "chat", "action": "rollback"})
        time.sleep(0.5)
        (canary,) = stack.config["pools"][1]["endpoints"]
        fetch(f"http://{canary['address']}/fault", {"fail_rate": 1.0})
        before, began = Counter(statuses), time.monotonic()
        fetch(f"{stack.admin}/rollouts", {"route": "chat", "action": "promote"})
        until(lambda: rollout()["phase"] == "rolled_back", 30, "the bad canary has nothing")
        took = time.monotonic() - began
        time.sleep(0.5)  # until the decider has taken it over
        failed, all_ = (Counter(statuses) - before)[500], (Counter(statuses) - before).total()
        assert failed >= 3
        assert failed <= 0.1 * all_ + 3
        after = Counter(statuses)
        time.sleep(1)
        assert set(Counter(statuses) - after) == {200}
        assert took < 30
        assert "rollout rolled_back" in stack.log()


@contextlib.contextmanager
def steady(stack: Stack, clients: int = 4) -> Iterator[Counter[int]]:
    """Have requests sent one after the other by each of ``clients``; yield how many ended with which status."""
    statuses: Counter[int] = Counter()
    over, lock = threading.Event(), threading.Lock()

    def send() -> None:
        while not over.is_set():
            status = stack.ask(max_tokens=1)[0]
            with lock:
                statuses[status] += 1
            time.sleep(0.02)

    threads = [threading.Thread(target=send) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        over.set()
        for thread in threads:
            thread.join()
