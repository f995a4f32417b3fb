"""The model in real time: tokens come when their step is over, and to whom they belong."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.simulator.engines import engine_request, small_engine
from tidegate.simulator.faults import Faults
from tidegate.simulator.live import Inbox, LiveEngine, Update
from tidegate.simulator.sequence import EngineRequest
from tidegate.simulator.stats import FinishReason, Gauges


@asynccontextmanager
async def _running(speed: float = 1.0) -> AsyncIterator[LiveEngine]:
    engine = LiveEngine(small_engine(), speed)
    steps = asyncio.create_task(engine.run())
    try:
        yield engine
    finally:
        steps.cancel()
        await asyncio.wait([steps])
        assert steps.cancelled(), "the engine's own loop does not fail"


async def _all(inbox: Inbox, requests: list[EngineRequest]) -> list[Update]:
    updates: list[Update] = []
    async with asyncio.timeout(5):
        while sum(update.reason is not None for update in updates) < len(requests):
            updates += await inbox.take()
    return updates


async def test_each_token_is_an_update_and_the_last_one_bears_the_reason() -> None:
    requests = [engine_request("a", output=3)]
    async with _running(speed=10.0) as engine:
        updates = await _all(engine.submit(requests), requests)
    assert updates == [Update(0), Update(0), Update(0, FinishReason.LENGTH)]


async def test_the_sequences_of_one_request_share_an_inbox() -> None:
    requests = [engine_request("a", output=2), engine_request("b", output=0)]
    async with _running(speed=10.0) as engine:
        updates = await _all(engine.submit(requests), requests)
    assert [update for update in updates if update.sequence == 1] == [Update(1, FinishReason.STOP)]
    assert len([update for update in updates if update.sequence == 0]) == 2


async def test_tokens_do_not_come_before_their_step_is_over() -> None:
    requests = [engine_request("a", prompt=20, output=11)]
    loop = asyncio.get_running_loop()
    async with _running() as engine:
        started = loop.time()
        await _all(engine.submit(requests), requests)
        took = loop.time() - started
        latency = engine.model.counters.end_to_end.sum
    assert took > 0.13, "a prefill of 30 ms and ten steps of 11 ms, less the resolution of timers"
    assert 0.13 < latency <= took + 0.02


async def test_gauges_are_those_of_the_step_under_way_and_zero_when_idle() -> None:
    requests = [engine_request("a", prompt=60, output=1)]
    async with _running() as engine:
        inbox = engine.submit(requests)
        assert engine.gauges == Gauges(), "no step has begun"
        await asyncio.sleep(0)
        assert engine.gauges.running == 1
        await _all(inbox, requests)
        await asyncio.sleep(0)
        assert engine.gauges == Gauges()


async def test_an_aborted_request_is_forgotten_and_the_others_go_on() -> None:
    gone, stays = [engine_request("gone", output=200)], [engine_request("stays", output=5)]
    async with _running(speed=10.0) as engine:
        left = engine.submit(gone)
        inbox = engine.submit(stays)
        await left.take()
        engine.abort(gone)
        engine.abort(gone)
        await _all(inbox, stays)
        await asyncio.sleep(0.05)  # the step under way ends
        assert engine.gauges == Gauges()


async def test_no_latency_is_negative_when_the_engine_cannot_keep_up() -> None:
    async with _running(speed=1e6) as engine:
        for number in range(30):
            requests = [engine_request(f"{number}", output=50)]
            await _all(engine.submit(requests), requests)
        counters = engine.model.counters
    for histogram in (counters.queue, counters.first_token, counters.between_tokens, counters.end_to_end):
        assert histogram.sum >= 0
    assert counters.generation_tokens == 30 * 50


async def test_an_engine_far_too_fast_for_its_machine_leaves_others_their_turn() -> None:
    requests = [engine_request("a", output=300)]
    turns = 0
    async with _running(speed=1e9) as engine:
        asked = asyncio.ensure_future(_all(engine.submit(requests), requests))
        while not asked.done():
            turns += 1
            await asyncio.sleep(0)
    assert turns >= 1
    assert len(asked.result()) == 300


async def test_a_frozen_engine_hands_out_nothing_until_it_is_thawed() -> None:
    requests = [engine_request("a", output=3)]
    async with _running(speed=10.0) as engine:
        engine.faults = Faults(freeze=True)
        inbox = engine.submit(requests)
        await asyncio.sleep(0.05)
        assert engine.gauges == Gauges()
        engine.faults = Faults()
        assert len(await _all(inbox, requests)) == 3
        assert engine.model.counters.end_to_end.sum > 0.05, "the time it was frozen counts"
