"""The benchmark of the queue: what it sends, what it makes of the answers, and that it runs."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import queue
from bench.overload import Answer, body, summary, workload
from bench.queue import CLASSES, HEADERS, Run, settings, thresholds, told, verdict
from bench.queue_cost import cost
from tidegate.config import parse


def asked(*arguments: str) -> argparse.Namespace:
    return queue._asked(arguments)


def run(side: str, load: float, good: int, urgent_ttft: float) -> Run:
    answers = [Answer(10, 200, urgent_ttft, whole=True), *(Answer(0, 200, 0.5, whole=True) for _ in range(good - 1))]
    classes = {
        name: summary([one for one in answers if one.priority == priority], 1.0, 2.0)
        for priority, name in CLASSES.items()
    }
    return Run(side, load, 1.0, summary(answers, 1.0, 2.0), classes, {"envoy": 100.0})


def test_clients_ask_for_what_they_say_and_engines_can_tell_prompts_apart() -> None:
    drawn = workload(300, 10.0, 0.15, 1)
    assert drawn == workload(300, 10.0, 0.15, 1)
    assert {one.priority for one in drawn.arrivals} == set(CLASSES) == set(HEADERS)
    assert all(one.max_tokens == one.output_tokens and 2 <= one.output_tokens <= 200 for one in drawn.arrivals)
    first, second = (json.loads(body(number, drawn.arrivals[0])) for number in (0, 1))
    assert len(first["prompt"]) == 4 * drawn.arrivals[0].prompt_tokens
    assert first["prompt"][:16] != second["prompt"][:16]
    assert first["max_tokens"] == drawn.arrivals[0].output_tokens


def test_an_answer_is_good_that_is_whole_and_began_in_time() -> None:
    found = summary(
        [
            Answer(0, 200, 1.0, whole=True, waited=0.5, estimate=0.8),
            Answer(0, 200, 3.0, whole=True, waited=2.5, estimate=0.5),
            Answer(0, 200, 0.1),
            Answer(0, 429, whole=True, retry_after=2.0),
            Answer(0),
        ],
        seconds=10.0,
        ttft=2.0,
    )
    assert (found.requests, found.good, found.per_second) == (5, 1, 0.1)
    assert found.statuses == {0: 1, 200: 3, 429: 1}
    assert [found.waited.p50, found.error.p50, found.error.p90] == pytest.approx([0.5, 0.3, 2.0])
    assert [found.off.p50, found.off.p90] == pytest.approx([0.3, 0.8])


def test_envoys_breakers_bound_connections_and_what_waits_for_them() -> None:
    assert thresholds("fifo", 16)["max_connections"] == thresholds("breaker", 16)["max_connections"] == 16
    assert thresholds("breaker", 16)["max_pending_requests"] < 16 < thresholds("fifo", 16)["max_pending_requests"]
    assert min(thresholds("no queue", 16).values()) > 100_000


@pytest.mark.parametrize("with_queue", [True, False])
def test_tidegate_is_configured_with_a_queue_or_without(with_queue: bool) -> None:
    said: dict[str, Any] = settings([9001, 9002], asked("--wait", "3"), queue=with_queue)
    config = parse(yaml.safe_dump(said).encode(), "bench.yaml")
    (pool,) = config.pools
    assert pool.queue.enabled is with_queue
    assert pool.queue.max_wait_seconds == 3.0
    assert [endpoint.max_running for endpoint in pool.endpoints] == [8, 8]
    assert len(config.keys) == len(config.tiers) == 2


def test_sides_are_held_against_the_best_and_against_themselves_without_overload() -> None:
    runs = [run("fifo", 0.8, 10, 0.1), run("fifo", 5.0, 2, 1.0), run("tidegate", 0.8, 10, 0.1)]
    runs.append(run("tidegate", 5.0, 9, 0.15))
    most, without = "of the most good answers a second of any side (10.0)", "what it is without overload"
    assert list(verdict(runs)) == [
        f"fifo: 20% {most}; urgent requests' TTFT p99 10.0 times {without}",
        f"tidegate: 90% {most}; urgent requests' TTFT p99 1.5 times {without}",
    ]
    text = "\n".join(told(runs[0]))
    assert "fifo, 0.8 times what can be served: 10.0 good/s; CPU/request: envoy 100 us" in text
    assert "urgent      1 sent, 100.0% good" in text


def test_waiting_costs_time_and_hardly_more_where_many_wait() -> None:
    straight, queued = cost(10, 50)
    assert 0 < straight < queued
    assert cost(1_000, 50)[1] < 20 * queued, "no look at all that waits"


def test_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "figures.json"
    arguments = (
        "--side",
        "breaker",
        "--load",
        "3",
        "--seconds",
        "1",
        "--warm-up",
        "0.2",
        "--engines",
        "1",
        "--batch",
        "2",
        "--waiting",
        "5",
    )
    assert queue.main([*arguments, "--json", str(figures)]) == 0
    said = capsys.readouterr().out
    assert "breaker, 3 times what can be served" in said
    assert "with 5 waiting" in said
    (found,) = json.loads(figures.read_text())["runs"]
    assert found["total"]["statuses"].get("503", 0) > 0
    assert found["total"]["good"] > 0
