"""Faults on request, and clients that leave."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.simulator.engines import serving, settings

LONG = {"prompt": "x", "max_tokens": 30_000, "ignore_eos": True}
SHORT = {"prompt": "x", "max_tokens": 1}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(settings()) as (base,), aiohttp.ClientSession(base) as session:
        yield session


async def _fault(http: aiohttp.ClientSession, **faults: Any) -> None:
    answer = await http.post("/fault", json=faults)
    assert answer.status == 200, await answer.text()


async def _status(http: aiohttp.ClientSession, path: str = "/v1/completions") -> int:
    answer = await (http.get(path) if path in {"/health", "/ping"} else http.post(path, json=SHORT))
    await answer.read()
    return answer.status


async def _running(http: aiohttp.ClientSession) -> float:
    page = await (await http.get("/metrics")).text()
    return next(float(line.split()[-1]) for line in page.splitlines() if line.startswith("vllm:num_requests_running"))


async def _until_running(http: aiohttp.ClientSession, expected: float) -> None:
    async with asyncio.timeout(5):
        while await _running(http) != expected:
            pass


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_what_its_request_held(http: aiohttp.ClientSession, stream: bool) -> None:
    asked = asyncio.ensure_future(http.post("/v1/completions", json=LONG | {"stream": stream}))
    await _until_running(http, 1)
    if stream:
        (await asked).close()
    else:
        asked.cancel()
    await _until_running(http, 0)
    page = await (await http.get("/metrics")).text()
    assert 'kv_cache_usage_perc{engine="0",model_name="sim-llama-3.1-8b"} 0.0' in page
    assert await (await http.get("/load")).text() == '{"server_load":0}'


async def test_failures_come_as_often_as_asked(http: aiohttp.ClientSession) -> None:
    await _fault(http, fail_rate=1.0)
    assert await _status(http) == 500
    assert await _status(http, "/health") == 200
    await _fault(http, fail_rate=0.5)
    seen = {await _status(http) for _ in range(20)}
    assert seen == {200, 500}
    await _fault(http, reset=True)
    assert await _status(http) == 200


async def test_a_failure_is_worded_as_vllm_words_a_dead_core(http: aiohttp.ClientSession) -> None:
    await _fault(http, fail_rate=1)
    body = await (await http.post("/v1/completions", json=SHORT)).json()
    assert body["error"] == {
        "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
        "type": "InternalServerError",
        "param": None,
        "code": 500,
    }


async def test_prompts_that_are_too_much_for_the_memory_fail_and_others_do_not(http: aiohttp.ClientSession) -> None:
    await _fault(http, oom_tokens=10)
    answer = await http.post("/v1/completions", json=SHORT | {"prompt": "word " * 50})
    assert answer.status == 500
    assert (await answer.json())["error"]["message"].startswith("CUDA out of memory")
    assert await _status(http) == 200


async def test_an_engine_dies_of_what_is_poison_to_it_and_of_nothing_else(
    http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths: list[int] = []
    monkeypatch.setattr(os, "_exit", deaths.append)
    await _fault(http, poison="magic")
    assert await _status(http) == 200
    assert deaths == []
    await http.post("/v1/completions", json=SHORT | {"prompt": "magic"})
    assert deaths == [1]


async def test_a_hanging_engine_answers_nothing_until_it_is_reset(http: aiohttp.ClientSession) -> None:
    await _fault(http, hang=True)
    for path in ("/health", "/v1/completions"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await _status(http, path)
    await _fault(http, reset=True)
    assert await _status(http, "/health") == 200


async def test_an_unhealthy_engine_says_so_and_still_serves(http: aiohttp.ClientSession) -> None:
    await _fault(http, unhealthy=True)
    assert [await _status(http, path) for path in ("/health", "/ping", "/v1/completions")] == [503, 503, 200]


async def test_a_frozen_engine_looks_healthy_and_goes_on_when_thawed(http: aiohttp.ClientSession) -> None:
    stream = await http.post("/v1/completions", json=LONG | {"stream": True})
    await stream.content.readany()
    await _fault(http, freeze=True)
    asked = asyncio.ensure_future(http.post("/v1/completions", json=SHORT))
    async with asyncio.timeout(5):
        while await (await http.get("/load")).text() != '{"server_load":2}':
            pass
    await asyncio.sleep(0.05)
    assert not asked.done()
    assert await _status(http, "/health") == 200
    assert await _running(http) == 1, "the new request shows in no gauge"
    stream.close()
    await asyncio.sleep(0.02)
    assert await _running(http) == 1, "the gauges stay as they were"
    await _fault(http, freeze=False)
    assert (await asked).status == 200
    await _until_running(http, 0)


async def test_an_idle_engine_can_be_frozen_too(http: aiohttp.ClientSession) -> None:
    await _fault(http, freeze=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await _status(http)
    await _fault(http, reset=True)
    assert await _status(http) == 200


async def test_a_slow_engine_takes_longer_by_the_factor(http: aiohttp.ClientSession) -> None:
    loop = asyncio.get_running_loop()
    await _fault(http, slow=400.0)
    started = loop.time()
    assert await _status(http) == 200
    assert loop.time() - started > 400 * 0.0065 / 20


async def test_the_faults_can_be_read(http: aiohttp.ClientSession) -> None:
    await _fault(http, slow=2, unhealthy=True)
    assert await (await http.get("/fault")).json() == {
        "fail_rate": 0.0,
        "slow": 2.0,
        "hang": False,
        "unhealthy": True,
        "freeze": False,
        "error_after": 0,
        "break_after": 0,
        "comments": False,
        "slow_health": 0.0,
        "slow_metrics": False,
        "unloaded": False,
        "poison": "",
        "oom_tokens": 0,
    }


async def test_a_fault_that_there_is_not_is_refused_and_changes_nothing(http: aiohttp.ClientSession) -> None:
    answer = await http.post("/fault", json={"slow": 2, "explode": True})
    assert answer.status == 400
    assert "explode" in (await answer.json())["error"]["message"]
    assert (await (await http.get("/fault")).json())["slow"] == 1.0


async def test_faults_can_be_there_from_the_start() -> None:
    async with serving(settings(fail_rate=1.0)) as (base,), aiohttp.ClientSession(base) as http:
        assert await _status(http) == 500
    async with serving(settings(hang=True)) as (base,), aiohttp.ClientSession(base) as http:
        assert (await (await http.get("/fault")).json())["hang"]


STREAM = {**LONG, "stream": True}


async def test_a_stream_can_end_with_an_error_inside(http: aiohttp.ClientSession) -> None:
    await _fault(http, error_after=3)
    async with http.post("/v1/completions", json=STREAM) as answer:
        assert answer.status == 200
        *tokens, error, rest = (await answer.text()).split("\n\n")
    assert len(tokens) >= 3
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == 500
    assert rest == ""


async def test_a_stream_can_break_off(http: aiohttp.ClientSession) -> None:
    await _fault(http, break_after=3)
    async with http.post("/v1/completions", json=STREAM) as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


async def test_usage_can_be_told_in_every_event(http: aiohttp.ClientSession) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    messages = [{"role": "user", "content": "hello"}]
    body = {"messages": messages, "max_tokens": 4, "ignore_eos": True, "stream": True, "stream_options": options}
    async with http.post("/v1/chat/completions", json=body) as answer:
        events = (await answer.text()).split("\n\n")[:-2]
    usage = [json.loads(event.removeprefix("data: "))["usage"] for event in events]
    assert [one["completion_tokens"] for one in usage] == [0, 1, 2, 3, 4, 4]
    assert len({one["prompt_tokens"] for one in usage}) == 1


async def test_a_frozen_engine_may_go_on_sending_comments(http: aiohttp.ClientSession) -> None:
    """What a vLLM does whose core is frozen or dead, with keep-alive on: bytes are no progress."""
    await _fault(http, freeze=True, comments=True)
    async with asyncio.timeout(5), http.post("/v1/completions", json=STREAM) as answer:
        assert await answer.content.readuntil(b"\n\n") == b": keep-alive\n\n"
        await _fault(http, reset=True)
        assert (await answer.content.readuntil(b"\n\n")).startswith(b"data: ")


async def test_a_health_page_can_be_slow_while_requests_are_served(http: aiohttp.ClientSession) -> None:
    await _fault(http, slow_health=100.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await _status(http, "/health")
    assert await _status(http) == 200


async def test_metrics_can_trickle(http: aiohttp.ClientSession) -> None:
    await _fault(http, slow_metrics=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), http.get("/metrics") as answer:
            await answer.read()
    assert await _status(http) == 200


async def test_an_engine_can_live_before_its_model_does(http: aiohttp.ClientSession) -> None:
    await _fault(http, unloaded=True)
    assert await _status(http, "/health") == 200
    assert (await (await http.get("/v1/models")).json())["data"] == []
    assert await _status(http) == 404
    await _fault(http, reset=True)
    assert await _status(http) == 200
