"""Records made of what a real Envoy logs: each way a request can end, as Envoy itself tells it."""

import asyncio
import contextlib

import aiohttp
import pytest

from tests.telemetry.real_envoy import LATE, Gateway, find_envoy, running
from tidegate.telemetry.outcome import Outcome
from tidegate.telemetry.record import RequestRecord, Usage

ENVOY = find_envoy()
pytestmark = pytest.mark.skipif(ENVOY is None, reason="there is no Envoy here")


async def ask(gateway: Gateway, path: str, **headers: str) -> RequestRecord:
    """Send one request, read its answer as far as there is one, and return what Envoy logs of it."""
    async with aiohttp.ClientSession() as session:
        all_headers = {"x-request": f"r{path}", **headers}
        async with session.post(gateway.url + path, headers=all_headers, data=b"{}") as response:
            with contextlib.suppress(aiohttp.ClientPayloadError):
                await response.read()
    return await gateway.end()


async def leave_early(gateway: Gateway, path: str, *, after_first_entry: bool) -> RequestRecord:
    """Send one request and close the connection before its answer is over."""
    host, port = gateway.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST {path} HTTP/1.1\r\nhost: x\r\nx-request: r{path}\r\ncontent-length: 0\r\n\r\n".encode())
    await writer.drain()
    if after_first_entry:
        running_record = await asyncio.wait_for(gateway.progress.get(), 10)
        assert running_record.outcome is Outcome.RUNNING
        assert running_record.reservation == f"r{path}"
        assert running_record.ttft_seconds is not None
    else:
        await asyncio.wait_for(LATE.get(), 10)
    writer.close()
    await writer.wait_closed()
    return await gateway.end()


async def test_what_a_real_envoy_logs_is_understood() -> None:
    """One Envoy for all: it takes longer to start than all of this takes."""
    assert ENVOY is not None
    async with running(ENVOY) as gateway:
        await _answers(gateway)
        await _errors(gateway)
        await _retries(gateway)
        await _clients_that_leave(gateway)
        assert gateway.malformed == 0
        assert gateway.ended.empty()


async def _answers(gateway: Gateway) -> None:
    whole = await ask(gateway, "/json")
    assert (whole.outcome, whole.reservation, whole.pool, whole.model) == (Outcome.OK, "r/json", "default", "m")
    assert (whole.status, whole.attempts, whole.stream) == (200, 1, False)
    assert whole.served == whole.named == gateway.live
    assert whole.usage == Usage(7, 5, 3, None)

    streamed = await ask(gateway, "/sse")
    assert (streamed.outcome, streamed.usage) == (Outcome.OK, Usage(7, 5, 3, None))
    assert streamed.duration_seconds is not None
    assert streamed.ttft_seconds is not None
    assert streamed.upstream_ttft_seconds is not None
    # The engine sends its headers at once and the first token after 50 ms.
    assert 0.04 < streamed.upstream_ttft_seconds <= streamed.ttft_seconds < streamed.duration_seconds
    assert streamed.seconds_per_output_token is not None

    assert (await ask(gateway, "/silent")).usage == Usage()


async def _errors(gateway: Gateway) -> None:
    assert (await ask(gateway, "/unknown")).outcome is Outcome.CLIENT_ERROR
    broken = await ask(gateway, "/broken")
    assert (broken.status, broken.outcome, broken.usage) == (200, Outcome.UPSTREAM_ERROR, Usage())
    refused = await ask(gateway, "/json", **{"x-refuse": "1"})
    assert (refused.status, refused.outcome, refused.reservation) == (404, Outcome.REFUSED, "")
    assert (refused.pool, refused.api, refused.attempts) == ("default", "chat_completions", 0)
    aborted = await ask(gateway, "/json", **{"x-abort": "1"})
    assert (aborted.status, aborted.outcome) == (500, Outcome.UNDECIDED)
    assert (await ask(gateway, "/direct")).outcome is Outcome.UNDECIDED
    assert (await ask(gateway, "/nowhere")).outcome is Outcome.UNAVAILABLE
    assert (await ask(gateway, "/nobody")).outcome is Outcome.UNAVAILABLE
    full = await ask(gateway, "/full")
    assert (full.status, full.outcome, full.attempts) == (503, Outcome.UPSTREAM_ERROR, 2)


async def _retries(gateway: Gateway) -> None:
    gateway.decisions.destinations = f"{gateway.dead},{gateway.live}"
    rescued = await ask(gateway, "/json")
    assert (rescued.outcome, rescued.attempts) == (Outcome.OK, 2)
    assert (rescued.named, rescued.served) == (gateway.dead, gateway.live)
    gateway.decisions.destinations = gateway.live


async def _clients_that_leave(gateway: Gateway) -> None:
    midway = await leave_early(gateway, "/long", after_first_entry=True)
    assert (midway.status, midway.outcome, midway.usage) == (200, Outcome.CLIENT_GONE, Usage())
    early = await leave_early(gateway, "/late", after_first_entry=False)
    assert (early.status, early.outcome, early.ttft_seconds) == (0, Outcome.CLIENT_GONE, None)
