"""Waiting for room instead of an error, with a real Envoy and simulated engines."""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.queueing import BATCH, Answer, ask, client, queueing, waiting
from tests.e2e.stack import Stack, engines, fetch, start_engine, until, up
from tests.e2e.workers import running as running_workers
from tests.e2e.workers import with_workers
from tests.ports import free_port


async def fill(session: aiohttp.ClientSession, stack: Stack, requests: int, tokens: int) -> list[asyncio.Task[Answer]]:
    """Ask for so many long answers; return once they run."""
    running = [asyncio.create_task(ask(session, stack, tokens)) for _ in range(requests)]
    await asyncio.to_thread(
        until, lambda: stack.total("tidegate_inflight_requests") == requests, 10, "the engines are full"
    )
    return running


async def leave(tasks: list[asyncio.Task[Answer]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("transport", ["h2", "grpc"])
async def test_requests_wait_for_their_turn_leave_and_are_told_to_come_again(tmp_path: Path, transport: str) -> None:
    with engines(tmp_path, "a100") as ports:
        config = queueing(ports)
        config["control"]["ext_proc_transport"] = transport
        config["limits"] = {"decision_timeout_seconds": 1.5}  # which a wait may exceed
        with up(tmp_path, config) as stack:
            async with client() as session:
                answers = await asyncio.gather(*(ask(session, stack, 100) for _ in range(3 * BATCH)))
                assert {one.status for one in answers} == {200}
                told = [one.headers for one in answers if "x-tidegate-queue-seconds" in one.headers]
                assert len(told) == 2 * BATCH
                assert all(0.5 < float(headers["x-tidegate-queue-seconds"]) < 10 for headers in told)
                assert all(float(headers["x-tidegate-queue-estimate-seconds"]) > 0 for headers in told)
                stack.settle()
                assert waiting(stack) == 0
                assert stack.total("tidegate_queue_wait_seconds_count", pool="default") == 2 * BATCH
                assert stack.total("tidegate_queue_left_total", outcome="admitted") == 2 * BATCH
                _, page, _ = fetch(f"{stack.admin}/queue")
                assert [one["requests"] for queue in page["queues"] for one in queue["classes"]] == [0, 0]
                # Who leaves while waiting is gone at once, and reaches no engine.
                running = await fill(session, stack, BATCH, 2_000)
                async with client() as leaving:
                    tasks = [asyncio.create_task(ask(leaving, stack, tokens=1)) for _ in range(20)]
                    await asyncio.to_thread(until, lambda: waiting(stack) == 20, 10, "20 wait")
                    await leave(tasks)
                began = time.monotonic()
                await asyncio.to_thread(until, lambda: waiting(stack) == 0, 5, "nobody waits")
                assert time.monotonic() - began < 1.0
                assert stack.total("tidegate_queue_left_total", outcome="cancelled") == 20
                assert stack.total("tidegate_queue_bytes") == stack.total("tidegate_queue_tokens") == 0
                assert stack.total("tidegate_picks_total") == 4 * BATCH
                # What waits when the control plane is stopped is told to come again.
                tasks = [asyncio.create_task(ask(session, stack)) for _ in range(50)]
                await asyncio.to_thread(until, lambda: waiting(stack) == 50, 5, "50 wait")
                os.kill(stack.child("serve").pid, signal.SIGTERM)
                answers = await asyncio.gather(*tasks)
                assert {(one.status, one.body["error"]["code"]) for one in answers} == {(503, "stopping")}
                await leave(running)


async def test_who_is_refused_shed_expires_or_runs_out_of_time_is_told_which(tmp_path: Path) -> None:
    with engines(tmp_path, "a100") as ports, up(tmp_path, queueing(ports, max_requests=4, max_wait_seconds=4)) as stack:
        async with client() as session:
            answers = await asyncio.gather(*(ask(session, stack, 50) for _ in range(4 * BATCH)))
            assert Counter(one.status for one in answers) == {200: 2 * BATCH, 429: 2 * BATCH}
            refused = next(one for one in answers if one.status == 429)
            error = refused.body["error"]
            assert (error["code"], error["queue_position"]) == ("queue_full", 5)
            assert error["estimated_wait_seconds"] >= 0
            assert int(refused.headers["retry-after"]) >= max(1, error["estimated_wait_seconds"])
            assert refused.took < 1
            stack.settle()
            running = await fill(session, stack, BATCH, 1_500)
            tasks = [asyncio.create_task(ask(session, stack)) for _ in range(3)]
            batch = asyncio.create_task(ask(session, stack, x_request_priority="-1"))
            await asyncio.to_thread(until, lambda: waiting(stack) == 4, 3, "four wait")
            hurried = await ask(session, stack, x_request_timeout="0.7")
            shed = await batch
            assert [hurried.status, shed.status] == [504, 429]
            assert shed.body["error"]["code"] == "shed"
            assert int(shed.headers["retry-after"]) >= max(1, shed.body["error"]["estimated_wait_seconds"])
            expired = await asyncio.gather(*tasks)
            assert [(one.status, one.body["error"]["code"]) for one in expired] == [(503, "wait_expired")] * 3
            assert all(3.9 < one.took < 8 for one in expired)
            await leave(running)
        stack.settle()
        assert waiting(stack) == 0
        assert stack.total("tidegate_picks_total") == 3 * BATCH


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


async def test_workers_have_a_queue_each_and_hear_of_room_that_others_made(tmp_path: Path) -> None:
    with engines(tmp_path, "a100") as ports:
        config = with_workers(ports)
        config["pools"][0]["queue"] = {"max_running": BATCH, "max_requests": 12}
        with running_workers(tmp_path, config) as (stack, workers):
            async with client() as session:
                running = await fill(session, stack, BATCH, 150)
                answers = await asyncio.gather(*(ask(session, stack, 10) for _ in range(10)))
                assert {one.status for one in answers} == {200}
                assert all("x-tidegate-queue-seconds" in one.headers for one in answers)
                assert {(await one).status for one in running} == {200}
                stack.settle()
                assert waiting(stack) == 0
                assert stack.total("tidegate_queue_left_total", outcome="admitted") == 10
                # What waits in a worker that is killed is lost with it, and is not counted for ever.
                running = await fill(session, stack, BATCH, 1_500)
                tasks = [asyncio.create_task(ask(session, stack, 10)) for _ in range(10)]
                await asyncio.to_thread(until, lambda: waiting(stack) == 10, 10, "ten wait")
                await asyncio.to_thread(workers.process(0).kill)
                await asyncio.to_thread(until, lambda: 0 < waiting(stack) < 10, 10, "those of one worker are gone")
                await leave(running)
                statuses = {one.status for one in await asyncio.gather(*tasks)}
                assert statuses == {200, 503}
            stack.settle()
            assert waiting(stack) == 0
