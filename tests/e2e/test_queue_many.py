"""Many that wait at a time: bursts, and clients that leave, with a real Envoy."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.holding import REQUEST, HoldingEngine
from tests.e2e.stack import Stack, configuration, until, up

CLIENTS = 1_000


def held_by(engines: list[HoldingEngine], **queue: Any) -> dict[str, Any]:
    config = configuration([engine.port for engine in engines], policy="least_request", engine="none")
    config["pools"][0]["queue"] = queue
    return config


def open_gauges(stack: Stack) -> dict[str, float]:
    """Return what is not zero and should be, once nobody is there."""
    names = [f"queue_{what}" for what in ("requests", "tokens", "bytes", "oldest_seconds")]
    names += ["ext_proc_inflight_streams", "inflight_requests", "inflight_reservations"]
    return {name: value for name in names if (value := stack.total(f"tidegate_{name}"))}


async def connected(stack: Stack) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.config["listener"]["port"])
    writer.write(REQUEST)
    return reader, writer


async def test_a_thousand_waiting_clients_that_leave_leave_nothing_behind(tmp_path: Path) -> None:
    engine = HoldingEngine()
    with engine.running(), up(tmp_path, held_by([engine], max_running=1, max_requests=2 * CLIENTS)) as stack:
        reader, first = await connected(stack)
        await reader.readuntil(b"\r\n\r\n")
        clients = [await connected(stack) for _ in range(CLIENTS)]
        await asyncio.to_thread(
            until, lambda: stack.total("tidegate_queue_requests") == CLIENTS, 20, "a thousand requests wait"
        )
        assert stack.total("tidegate_queue_bytes") > 50 * CLIENTS
        for _, writer in clients:
            writer.transport.abort()
        await asyncio.to_thread(until, lambda: stack.total("tidegate_queue_requests") == 0, 10, "nobody waits")
        assert open_gauges(stack) == {"inflight_requests": 1.0, "inflight_reservations": 1.0}
        assert stack.total("tidegate_queue_left_total", outcome="cancelled") == CLIENTS
        engine.release()
        await reader.read()
        first.close()
        await asyncio.to_thread(until, lambda: not open_gauges(stack), 10, "every gauge is at zero")
        assert engine.held == 1


@pytest.mark.parametrize(("places", "waiting"), [(10, 20), (100, 0)])
async def test_a_burst_of_equal_requests_is_spread_evenly(tmp_path: Path, places: int, waiting: int) -> None:
    engines = [HoldingEngine() for _ in range(8)]
    async with contextlib.AsyncExitStack() as running:
        for engine in engines:
            running.enter_context(engine.running())
        stack = running.enter_context(up(tmp_path, held_by(engines, max_running=places)))
        clients = []
        for _ in range(100):
            reader, writer = await connected(stack)
            running.callback(writer.close)
            clients.append(reader)
        await asyncio.to_thread(until, lambda: sum(one.held for one in engines) == 100 - waiting, 20, "some run")
        await asyncio.to_thread(until, lambda: stack.total("tidegate_queue_requests") == waiting, 20, "the others wait")
        assert max(one.held for one in engines) - min(one.held for one in engines) <= 2
        assert max(one.held for one in engines) <= min(places, 14)
        for engine in engines:
            engine.release()
        answers = await asyncio.gather(*(reader.read() for reader in clients))
        assert all(b"data: [DONE]" in answer for answer in answers)
