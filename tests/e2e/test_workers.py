"""Two workers behind a real Envoy: what one decides the other knows, one page shows both, and a reload reaches both."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.holding import HoldingEngine, hold
from tests.e2e.stack import MODEL, Stack, engines, fetch, until
from tests.e2e.workers import Load, Stream, running, with_workers

STREAMS = 2_000


def _inflight(stack: Stack) -> list[float]:
    return sorted(
        value for (name, _), value in stack.metrics().items() if name == "tidegate_inflight_requests" and value
    )


@pytest.fixture
def held() -> Iterator[list[HoldingEngine]]:
    """Four engines that begin answers and end them when they are told."""
    with contextlib.ExitStack() as engines_:
        four = [HoldingEngine() for _ in range(4)]
        for engine in four:
            engines_.enter_context(engine.running())
        yield four


def _over(engines_: list[HoldingEngine]) -> dict[str, Any]:
    config = with_workers([engine.port for engine in engines_])
    config["pools"][0]["engine"] = "none"
    return config


def _end(stack: Stack, engines_: list[HoldingEngine], streams: list[Stream]) -> None:
    for engine in engines_:
        engine.release()
    assert all(stream.finished() for stream in streams)
    until(lambda: stack.inflight() == {}, 10, "nothing is in flight")


@pytest.mark.parametrize("transport", ["grpc", "h2"])
def test_each_worker_sees_what_the_other_has_reserved(
    tmp_path: Path, held: list[HoldingEngine], transport: str
) -> None:
    """Each gets every other request. If they did not know of each other, two engines would often get two of four."""
    config = _over(held)
    config["control"]["ext_proc_transport"] = transport
    with running(tmp_path, config) as (stack, _):
        streams = []
        for number in range(24):
            streams.append(Stream(stack, 1))
            until(lambda: sum(_inflight(stack)) == number + 1, 60, "it is reserved")  # noqa: B023
            if number % 4 == 3:
                assert _inflight(stack) == [number // 4 + 1] * 4
        _end(stack, held, streams)


def test_a_burst_through_two_workers_spreads_evenly(tmp_path: Path, held: list[HoldingEngine]) -> None:
    with running(tmp_path, _over(held)) as (stack, _):
        streams = [Stream(stack, 1) for _ in range(32)]
        until(lambda: sum(_inflight(stack)) == 32, 60, "all are in flight")
        seen = _inflight(stack)
        # 8 each. On a busy machine a worker hears of the other's picks late; taking turns among equals makes up for it.
        assert max(seen) - min(seen) <= 2, seen
        assert len(seen) == 4
        _end(stack, held, streams)


def test_the_figures_of_both_workers_add_up_on_one_page(tmp_path: Path) -> None:
    with engines(tmp_path, "h100", "h100") as ports, running(tmp_path, with_workers(ports)) as (stack, workers):
        for _ in range(20):
            assert stack.ask(max_tokens=1)[0] == 200
        for _ in range(4):
            assert fetch(f"{stack.clients}/chat/completions", {"model": MODEL})[0] == 400
        stack.settle()
        assert stack.total("tidegate_incoming_requests_total", pool="default") == 20
        assert stack.total("tidegate_picks_total", pool="default", policy="least_request") == 20
        assert stack.total("tidegate_requests_total", code="200", outcome="ok") == 20
        assert stack.total("tidegate_decision_seconds_count") == 20
        assert stack.total("tidegate_token_counts_total", source="exact") == 20
        assert stack.total("tidegate_token_count_seconds_count") == 20
        assert stack.total("tidegate_refusals_total", api="chat_completions") == 4
        assert stack.total("tidegate_ext_proc_streams_total", outcome="finished") == 24
        assert stack.total("tidegate_ext_proc_inflight_streams") == 0
        assert [worker["state"] for worker in workers.status()] == ["ready", "ready"]
        assert [worker["port"] for worker in workers.status()] == [
            stack.config["control"]["ext_proc_port"] + number for number in range(2)
        ]


def test_a_correction_that_one_request_taught_reaches_both_workers(tmp_path: Path) -> None:
    with engines(tmp_path, "h100") as ports, running(tmp_path, with_workers(ports)) as (stack, _):
        prompt = "eine Antwort, die lang genug ist, um etwas zu lehren " * 40
        assert stack.ask(prompt, max_tokens=1)[0] == 200
        stack.settle()
        assert stack.total("tidegate_token_correction_ratio", pool="default") > 0
        before = stack.total("tidegate_prompt_tokens_estimated_total", source="learned")
        for number in range(4):
            assert stack.ask(f"{number} {prompt}", max_tokens=1)[0] == 200
        stack.settle()
        assert stack.total("tidegate_prompt_tokens_estimated_total", source="learned") > before
        assert stack.total("tidegate_prompt_tokens_estimated_total", source="exact") < 1000, "of the first one alone"


def test_a_reload_reaches_both_workers_and_costs_no_request(tmp_path: Path) -> None:
    with engines(tmp_path, "h100", "h100") as ports, running(tmp_path, with_workers(ports[:1])) as (stack, workers):
        pools = stack.config["pools"]
        with Load(stack).from_clients(4) as load:
            for number, name in enumerate(("one", "two", "three"), 1):
                pools[0]["name"] = name
                stack.write_config()
                until(
                    lambda: stack.total("tidegate_config_reloads_total", result="success") == number,  # noqa: B023
                    10,
                    "it is taken over",
                )
                load.more(20)
            pools.append({"name": "more", "models": ["sim-*"], "endpoints": [{"address": f"127.0.0.1:{ports[1]}"}]})
            stack.write_config()
            until(lambda: stack.total("tidegate_picks_total", pool="more") > 20, 10, "the new pool serves")
            workers.process(0).kill()
            pools.pop()
            stack.write_config()
            until(lambda: stack.total("tidegate_config_reloads_total", result="success") == 5, 10, "it is taken over")
            workers.ready()
            load.more(20)
        assert len(load.failures()) <= 2, "only what the killed worker had begun to answer"
        assert stack.total("tidegate_picks_total", pool="more") == 0, "its series went with the pool"
        until(lambda: stack.inflight() == {}, 10, "nothing is in flight")
        assert stack.total("tidegate_reservations_expired_total") == 0


def test_two_thousand_streams_are_open_at_a_time(tmp_path: Path, held: list[HoldingEngine]) -> None:
    with running(tmp_path, _over(held)) as (stack, _):
        assert asyncio.run(hold(stack, held, STREAMS)) == {True: STREAMS}
        until(lambda: stack.inflight() == {}, 20, "nothing is in flight")
        assert stack.total("tidegate_requests_total", code="200", outcome="ok") == STREAMS
        assert stack.total("tidegate_ext_proc_streams_total", outcome="finished") == STREAMS
        assert stack.total("tidegate_reservations_expired_total") == 0
