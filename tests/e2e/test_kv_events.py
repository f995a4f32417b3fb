"""Engines tell what they cache, and picks follow, through a real Envoy."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import MODEL, Stack, fetch, start_engine, until, up
from tests.e2e.workers import with_workers
from tests.ports import free_port

BLOCKS = 40


@contextlib.contextmanager
def told_engines(folder: Path, number: int, *options: str) -> Iterator[list[dict[str, Any]]]:
    """Run engines that publish KV events; yield what a configuration says of each."""
    ports = [(free_port(), free_port(), free_port()) for _ in range(number)]
    processes = [
        start_engine(
            *(folder, port, "h100"),
            ["--kv-events-port", str(events), "--kv-events-replay-port", str(replay), *options],
        )
        for port, events, replay in ports
    ]
    try:
        yield [
            {"address": f"127.0.0.1:{port}", "kv_events_port": events, "kv_events_replay_port": replay}
            for port, events, replay in ports
        ]
    finally:
        for process in processes:
            process.kill()


def config_of(endpoints: Sequence[dict[str, Any]], workers: int = 1) -> dict[str, Any]:
    config = with_workers([], workers, policy="prefix_affinity")
    config["pools"][0] |= {"endpoints": list(endpoints), "kv_events": {}}
    return config


def prompt(number: int) -> list[int]:
    return [1000 * number + at for at in range(16 * BLOCKS + 1)]


def complete(url: str, ids: list[int]) -> str:
    """Have a prompt continued, at once; return the engine that did."""
    status, told, headers = fetch(f"{url}/completions", {"model": MODEL, "prompt": ids, "max_tokens": 2})
    assert status == 200, told
    return headers["x-served-by"]


def connected(stack: Stack) -> list[Any]:
    _, told, _ = fetch(f"{stack.admin}/status")
    return [engine for engine in told["kv_events"] if engine["connected"]]


def picked(stack: Stack, ids: list[int]) -> set[str]:
    """Have a prompt continued three times, while nothing else is in flight; return the engines that did."""
    found = set()
    for _ in range(3):
        until(lambda: not stack.inflight(), 10, "nothing is in flight")
        found.add(complete(stack.clients, ids))
    return found


def heard(stack: Stack, batches: int) -> None:
    """Wait until so many batches have been taken in and no more come, and the workers, if any, have been told."""

    def taken() -> float:
        return stack.total("tidegate_kv_events_total", outcome="taken")

    until(lambda: taken() >= batches, 10, f"{batches} batches came")
    before = -1.0
    while (now := taken()) != before:
        before = now
        time.sleep(0.5)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_pick_goes_where_engines_say_that_a_prompt_is_cached(tmp_path: Path, workers: int) -> None:
    with told_engines(tmp_path, 3) as endpoints:
        first, second, third = (endpoint["address"] for endpoint in endpoints)
        with up(tmp_path, config_of(endpoints, workers)) as stack:
            until(lambda: len(connected(stack)) == 3, 20, "all engines are listened to")
            # Behind Tidegate's back: only the engines' own word can tell.
            for number, address in enumerate((third, first, second), 1):
                assert complete(f"http://{address}/v1", prompt(number)) == address
            heard(stack, 3)
            for number, address in enumerate((third, first, second), 1):
                assert picked(stack, prompt(number)) == {address}
            # The cache is cleared, and another engine computes it: the pick follows.
            until(lambda: fetch(f"http://{third}/reset_prefix_cache", {})[0] == 200, 5, "nothing runs there")
            assert complete(f"http://{second}/v1", prompt(1)) == second
            heard(stack, 5)
            assert picked(stack, prompt(1)) == {second}
            assert stack.total("tidegate_kv_events_total", outcome="missed") == 0


def test_what_was_cached_before_tidegate_came_is_repeated_and_what_is_evicted_is_forgotten(tmp_path: Path) -> None:
    options = ("--num-gpu-blocks", str(2 * BLOCKS), "--max-model-len", "1000")
    with told_engines(tmp_path, 3, *options) as endpoints:
        first, second, third = (endpoint["address"] for endpoint in endpoints)
        for address in (first, second, third):
            until(lambda address=address: _healthy(address), 20, "it is up")  # type: ignore[misc]
        assert complete(f"http://{second}/v1", prompt(1)) == second
        with up(tmp_path, config_of(endpoints)) as stack:
            until(lambda: len(connected(stack)) == 3, 20, "all engines are listened to")
            heard(stack, 1)
            assert picked(stack, prompt(1)) == {second}
            # Other prompts push it out, and a third engine computes it.
            for number in (2, 3, 4):
                complete(f"http://{second}/v1", prompt(number))
            complete(f"http://{third}/v1", prompt(1))
            heard(stack, 5)
            assert picked(stack, prompt(1)) == {third}


def test_an_engine_that_dies_has_nothing_cached_when_it_is_back(tmp_path: Path) -> None:
    with told_engines(tmp_path, 1) as endpoints:
        (address,) = (endpoint["address"] for endpoint in endpoints)
        with up(tmp_path, config_of(endpoints)) as stack:
            until(lambda: len(connected(stack)) == 1, 20, "it is listened to")
            complete(stack.clients, prompt(1))
            with contextlib.suppress(OSError):
                fetch(f"http://{address}/fault", {"die": True})
            until(lambda: not connected(stack), 10, "its end is seen")
            assert stack.total("tidegate_kv_events_total", outcome="disconnected") == 1
            options = ["--kv-events-port", str(endpoints[0]["kv_events_port"])]
            again = start_engine(tmp_path, int(address.rpartition(":")[2]), "h100", options)
            try:
                until(lambda: len(connected(stack)) == 1, 20, "it is listened to again")
            finally:
                again.kill()


def _healthy(address: str) -> bool:
    try:
        return fetch(f"http://{address}/health")[0] == 200
    except OSError:
        return False
