"""Both transports behind a real Envoy: what every other end-to-end test rests on.

Those run over the default one, and over the other with TIDEGATE_TEST_EXT_PROC_TRANSPORT=grpc.
"""

import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from tests.e2e.stack import MODEL, Stack, configuration, engines, fetch, until, up


def over(transport: str, ports: list[int]) -> dict[str, Any]:
    config = configuration(ports)
    config["control"]["ext_proc_transport"] = transport
    return config


@pytest.fixture(scope="module", params=["h2", "grpc"])
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp(request.param)
    with engines(folder, "h100", "h100") as ports, up(folder, over(request.param, ports)) as running:
        yield running


def request_of(content: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 2, **more}


@pytest.mark.parametrize("stream", [False, True])
def test_the_openai_sdk_is_answered(stack: Stack, stream: bool) -> None:
    more = {"stream_options": {"include_usage": True}} if stream else {}
    with openai.OpenAI(base_url=stack.clients, api_key="unused", max_retries=0) as client:
        answer: Any = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=12,
            stream=stream,
            extra_body={"ignore_eos": True, **more},
        )
        usage = [*answer][-1].usage if stream else answer.usage
    assert usage.completion_tokens == 12


def test_a_body_of_twenty_megabytes_is_decided(stack: Stack) -> None:
    before = stack.total("tidegate_ext_proc_streams_total", outcome="finished")
    status, answer, _ = fetch(f"{stack.clients}/chat/completions", request_of("x" * 20_000_000))
    # An engine of this size says no; that it was asked is the decision.
    assert status in {200, 400}, answer
    assert answer.get("object") == "chat.completion" or "context" in json.dumps(answer)
    assert stack.total("tidegate_ext_proc_streams_total", outcome="finished") == before + 1


async def _one(session: aiohttp.ClientSession, url: str, leave_after: float | None) -> int | None:
    body = request_of("hello", max_tokens=4 if leave_after is None else 200)
    try:
        async with asyncio.timeout(leave_after), session.post(url, json=body) as answer:
            await answer.read()
            return answer.status
    except TimeoutError:
        return None


async def _many(stack: Stack, count: int, *, leave: bool) -> list[int | None]:
    connector = aiohttp.TCPConnector(limit=0)
    async with asyncio.timeout(60), aiohttp.ClientSession(connector=connector) as session:
        url = f"{stack.clients}/chat/completions"
        return await asyncio.gather(*(_one(session, url, 0.002 * (n % 60) if leave else None) for n in range(count)))


def test_five_hundred_requests_at_once_are_all_answered(stack: Stack) -> None:
    assert set(asyncio.run(_many(stack, 500, leave=False))) == {200}


def test_a_storm_of_clients_that_leave_leaves_nothing_in_flight(stack: Stack) -> None:
    asyncio.run(_many(stack, 400, leave=True))
    until(lambda: not stack.inflight(), 10, "everything is released")
    assert stack.total("tidegate_inflight_reservations") == 0
    assert stack.ask()[0] == 200


def test_a_control_plane_that_is_asked_to_stop_fails_no_request(tmp_path: Path) -> None:
    config = over("h2", [1])
    config["limits"] = {"absence_seconds": 20, "decision_timeout_seconds": 20}  # however long a start takes here
    with engines(tmp_path, "h100", "h100") as ports:
        config["pools"][0]["endpoints"] = [{"address": f"127.0.0.1:{port}"} for port in ports]
        _stop_under_load(tmp_path, config)


def _stop_under_load(folder: Path, config: dict[str, Any]) -> None:
    with up(folder, config) as stack:
        statuses: list[int] = []
        stop = threading.Event()

        def ask() -> None:
            while not stop.is_set():
                statuses.append(stack.ask(max_tokens=1)[0])

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(statuses) > 20, 10, "requests flow")
        stack.child("serve").send_signal(signal.SIGTERM)
        until(lambda: "ended unexpectedly" in stack.log(), 5, "its end is noticed")
        asked = len(statuses)
        until(lambda: len(statuses) > asked + 20, 20, "requests flow again")
        stop.set()
        for thread in threads:
            thread.join(30)
        assert set(statuses) == {200}
