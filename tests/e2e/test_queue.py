"""Waiting for room instead of an error, with a real Envoy and simulated engines."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.queueing import BATCH, Answer, ask, client, queueing, waiting
from tests.e2e.stack import Stack, engines, fetch, start_engine, until, up
from tests.ports import free_port


async def fill(session: aiohttp.ClientSession, stack: Stack, requests: int, tokens: int) -> list[asyncio.Task[Answer]]:
    """Ask for so many long answers; return once they run."""
    running = [asyncio.create_task(ask(session, stack, tokens)) for _ in range(requests)]
    await asyncio.to_thread(
        until, lambda: stack.total("tidegate_inflight_requests") == requests, 10, "the engines are full"
    )
    return running


@contextlib.contextmanager
def one_engine(folder: Path, **queue: Any) -> Iterator[Stack]:
    with engines(folder, "a100") as ports, up(folder, queueing(ports, **queue)) as stack:
        yield stack


@pytest.mark.parametrize("transport", ["h2", "grpc"])
async def test_a_request_without_room_waits_and_its_answer_says_for_how_long(tmp_path: Path, transport: str) -> None:
    with engines(tmp_path, "a100") as ports:
        config = queueing(ports)
        config["control"]["ext_proc_transport"] = transport
        config["limits"] = {"decision_timeout_seconds": 0.5}  # which a wait may exceed
        with up(tmp_path, config) as stack:
            async with client() as session:
                answers = await asyncio.gather(*(ask(session, stack, 100) for _ in range(3 * BATCH)))
            assert {one.status for one in answers} == {200}
            waited = [
                float(one.headers["x-tidegate-queue-seconds"])
                for one in answers
                if "x-tidegate-queue-seconds" in one.headers
            ]
            assert len(waited) == 2 * BATCH
            assert all(0.5 < seconds < 10 for seconds in waited)
            assert sum("x-tidegate-queue-estimate-seconds" in one.headers for one in answers) == 2 * BATCH
            stack.settle()
            assert waiting(stack) == 0
            assert stack.total("tidegate_queue_wait_seconds_count", pool="default") == 2 * BATCH
            assert stack.total("tidegate_queue_left_total", outcome="admitted") == 2 * BATCH
            _, page, _ = fetch(f"{stack.admin}/queue")
            assert [one["requests"] for queue in page["queues"] for one in queue["classes"]] == [0, 0]


async def test_who_leaves_while_waiting_is_gone_at_once_and_reaches_no_engine(tmp_path: Path) -> None:
    with one_engine(tmp_path) as stack:
        async with client() as session:
            running = await fill(session, stack, BATCH, 2_000)
            async with client() as leaving:
                tasks = [asyncio.create_task(ask(leaving, stack, tokens=1)) for _ in range(20)]
                await asyncio.to_thread(until, lambda: waiting(stack) == 20, 10, "20 wait")
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            began = time.monotonic()
            await asyncio.to_thread(until, lambda: waiting(stack) == 0, 5, "nobody waits")
            assert time.monotonic() - began < 1.0
            assert stack.total("tidegate_queue_left_total", outcome="cancelled") == 20
            assert stack.total("tidegate_queue_bytes") == stack.total("tidegate_queue_tokens") == 0
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        stack.settle()
        assert stack.total("tidegate_picks_total") == BATCH


async def test_who_is_shed_expires_or_runs_out_of_time_is_told_which(tmp_path: Path) -> None:
    with one_engine(tmp_path, max_requests=3, max_wait_seconds=3.0) as stack:
        async with client() as session:
            running = await fill(session, stack, BATCH, 1_000)
            tasks = [asyncio.create_task(ask(session, stack)) for _ in range(2)]
            batch = asyncio.create_task(ask(session, stack, x_request_priority="-1"))
            await asyncio.to_thread(until, lambda: waiting(stack) == 3, 2, "three wait")
            hurried = await ask(session, stack, x_request_timeout="0.7")
            shed = await batch
            assert [hurried.status, shed.status] == [504, 429]
            assert shed.body["error"]["code"] == "shed"
            assert int(shed.headers["retry-after"]) >= 1
            expired = await asyncio.gather(*tasks)
            assert [(one.status, one.body["error"]["code"]) for one in expired] == [(503, "wait_expired")] * 2
            assert all(2.9 < one.took < 6 for one in expired)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        stack.settle()
        assert waiting(stack) == 0
        assert stack.total("tidegate_picks_total") == BATCH


async def test_four_times_as_many_as_fit_are_refused_with_a_time_that_is_true(tmp_path: Path) -> None:
    with one_engine(tmp_path, max_requests=BATCH) as stack:
        async with client() as session:
            answers = await asyncio.gather(*(ask(session, stack, 100) for _ in range(4 * BATCH)))
            assert Counter(one.status for one in answers) == {200: 2 * BATCH, 429: 2 * BATCH}
            refused = next(one for one in answers if one.status == 429)
            error = refused.body["error"]
            assert (error["code"], error["queue_position"]) == ("queue_full", BATCH + 1)
            assert error["estimated_wait_seconds"] >= 0
            assert refused.took < 1
            again = await ask(session, stack, 1)
            assert again.status == 200
        assert int(refused.headers["retry-after"]) <= 3


async def test_requests_wait_for_a_fleet_that_is_down_and_go_when_it_is_back(tmp_path: Path) -> None:
    port = free_port()
    engine = start_engine(tmp_path, port, "a100")
    config = queueing([port], max_wait_seconds=8.0)
    with up(tmp_path, config) as stack:
        try:
            until(lambda: stack.total("tidegate_engine_waiting_requests") == 0, 5, "it is known")
            until(lambda: "REACHABLE" in json.dumps(fetch(f"{stack.admin}/status")[1]).upper(), 10, "it is reached")
            engine.kill()
            until(lambda: "unreachable" in json.dumps(fetch(f"{stack.admin}/status")[1]), 10, "it is down")
            async with client() as session:
                tasks = [asyncio.create_task(ask(session, stack, 5)) for _ in range(30)]
                late = asyncio.create_task(ask(session, stack, x_request_timeout="0.5"))
                await asyncio.to_thread(until, lambda: waiting(stack) == 30, 5, "30 wait")
                assert (await late).status == 504
                engine = await asyncio.to_thread(start_engine, tmp_path, port, "a100")
                answers = await asyncio.gather(*tasks)
            assert {one.status for one in answers} == {200}
            stack.settle()
            assert waiting(stack) == 0
        finally:
            engine.kill()


async def test_what_waits_when_the_control_plane_is_stopped_is_told_to_come_again(tmp_path: Path) -> None:
    with one_engine(tmp_path) as stack:
        async with client() as session:
            running = await fill(session, stack, BATCH, 1_000)
            tasks = [asyncio.create_task(ask(session, stack)) for _ in range(50)]
            await asyncio.to_thread(until, lambda: waiting(stack) == 50, 5, "50 wait")
            os.kill(stack.child("serve").pid, signal.SIGTERM)
            answers = await asyncio.gather(*tasks)
            assert {one.status for one in answers} == {503}
            assert {one.body["error"]["code"] for one in answers} == {"stopping"}
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
