"""What passes through untouched: bodies on their way in, retries included, and answers on their way out."""

import asyncio
import gzip
import hashlib
import io
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

import pytest
import pytest_asyncio
from aiohttp import web

from tests.e2e.gateway import CHAT, Gateway, standing
from tests.ports import free_port

EVENT = b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}\n\n'
DONE = b"data: [DONE]\n\n"
LONG = b'data: {"x":"' + b"y" * 10_000_000 + b'"}\n\n'

STREAMS: dict[str, Sequence[bytes]] = {
    "plain": [EVENT, EVENT, USAGE, DONE],
    "split at every byte": [bytes([byte]) for byte in EVENT + USAGE + DONE],
    "CRLF": [part.replace(b"\n", b"\r\n") for part in (EVENT, USAGE, DONE)],
    "bare CR": [part.replace(b"\n", b"\r") for part in (EVENT, USAGE, DONE)],
    "no space": [part.replace(b"data: ", b"data:") for part in (EVENT, USAGE, DONE)],
    "no end": [EVENT, USAGE, b"data: [DONE]"],
    "no DONE": [EVENT, USAGE],
    "a line of ten megabytes": [LONG, USAGE, DONE],
    "a flood of comments": [b": ping\n\n" * 20_000, EVENT, DONE],
    "BOM and two data lines": [b"\xef\xbb\xbf" + EVENT, b'data: {"a":\ndata: 1}\n\n', DONE],
    "ids, retries and unknown fields": [b"id: 7\nretry: 10\nfoo: bar\n" + EVENT, DONE],
    "an error within": [EVENT, b'event: error\ndata: {"error":{"message":"boom"}}\n\n'],
    "no text at all": [b"\xff\xfe\0\x80" * 100],
    "nothing": [],
}
Script = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway() -> AsyncIterator[Gateway]:
    async with standing() as running:
        running.decider.destinations = running.engines[1].address
        yield running


pytestmark = pytest.mark.asyncio(loop_scope="module")


def _streaming(
    pieces: Sequence[bytes], headers: Mapping[str, str] = MappingProxyType({}), pause: float = 0.0, status: int = 200
) -> Script:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"content-type": "text/event-stream", **headers})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(pause)
        return response

    return answer


async def _answer(gateway: Gateway, script: Script, body: bytes = b"{}") -> tuple[int, bytes, dict[str, str]]:
    gateway.engines[1].script = script
    url = f"http://127.0.0.1:{gateway.config.listener.port}{CHAT}"
    try:
        async with gateway.session.post(
            url, data=io.BytesIO(body), auto_decompress=False, allow_redirects=False
        ) as response:
            return response.status, await response.read(), {k.lower(): v for k, v in response.headers.items()}
    finally:
        gateway.engines[1].script = None


@pytest.mark.parametrize("case", STREAMS)
async def test_a_stream_reaches_the_client_byte_for_byte(gateway: Gateway, case: str) -> None:
    status, got, _ = await _answer(gateway, _streaming(STREAMS[case]))

    assert status == 200
    assert hashlib.sha256(got).hexdigest() == hashlib.sha256(b"".join(STREAMS[case])).hexdigest()


async def test_a_comment_is_passed_on_at_once(gateway: Gateway) -> None:
    gateway.engines[1].script = _streaming([b": ping\n\n", EVENT, DONE], pause=0.7)
    began = time.monotonic()
    try:
        async with gateway.session.post(
            f"http://127.0.0.1:{gateway.config.listener.port}{CHAT}", data=b"{}"
        ) as response:
            assert await response.content.readany() == b": ping\n\n"
            assert time.monotonic() - began < 0.6
            assert await response.content.readany() == EVENT
            assert time.monotonic() - began < 1.3
    finally:
        gateway.engines[1].script = None


ANSWERS: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "a good answer in gzip": (200, gzip.compress(b'{"usage":{"prompt_tokens":3}}'), {"content-encoding": "gzip"}),
    "an error in gzip": (400, gzip.compress(b'{"error":{"message":"slow down"}}'), {"content-encoding": "gzip"}),
    "gzip of nothing": (200, b"", {"content-encoding": "gzip"}),
    "gzip that is none": (200, b"plain", {"content-encoding": "gzip"}),
    "an encoding nobody knows": (200, b"\0\1\2", {"content-encoding": "x-lz9, gzip"}),
    "eight megabytes of JSON": (200, b"[" + b"0.125," * 1_400_000 + b"1]", {"content-type": "application/json"}),
    "created": (201, b'{"id":"x"}', {}),
    "partial": (206, b"abc", {"content-range": "bytes 0-2/9"}),
    "an error of the engine's own": (422, b'{"detail":[{"loc":["body"]}]}', {"content-type": "application/json"}),
    "an error in plain words": (500, b"upstream connect error", {"content-type": "text/plain"}),
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_an_answer_reaches_the_client_as_the_engine_gave_it(gateway: Gateway, case: str) -> None:
    status, body, headers = ANSWERS[case]

    got, received, told = await _answer(gateway, _streaming([body] if body else [], headers, status=status))

    assert got == status
    assert received == body
    assert {name: told[name] for name in headers} == headers


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(gateway: Gateway, status: int) -> None:
    reached: list[bytes] = []

    async def inside(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(await reader.read(100))
        writer.close()

    async with await asyncio.start_server(inside, "127.0.0.1", port := free_port()):
        spoofed = {"x-gateway-destination-endpoint-served": "spoof", "endpoint-load-metrics": "x"}
        script = _streaming([], {"location": f"http://127.0.0.1:{port}/metadata", **spoofed}, status=status)
        got, _, headers = await _answer(gateway, script)

    assert (got, reached) == (status, [])
    assert not set(spoofed) & set(headers)


@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 33 * 1024, 1024 * 1024 + 1, 12_000_000])
async def test_a_body_reaches_the_engine_byte_for_byte_also_on_a_retry(gateway: Gateway, size: int) -> None:
    first, second = gateway.engines
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    for engine in gateway.engines:
        engine.digests.clear()
    first.status = 503
    gateway.decider.destinations = f"{first.address},{second.address}"
    try:
        if size:
            status, _, _ = await _answer(gateway, _streaming([b"ok"]), body)
            assert status == 200
            assert first.digests == second.digests == [hashlib.sha256(body).hexdigest()]
        else:
            # A request without a body has its decision by its headers alone, which the stub does not give.
            assert (await _answer(gateway, _streaming([b"ok"]), body))[0] == 503
    finally:
        first.status = 200
        gateway.decider.destinations = second.address


async def test_an_answer_of_ours_to_a_client_that_streams_is_no_stream(gateway: Gateway) -> None:
    gateway.decider.pool = None
    try:
        status, got, headers = await _answer(gateway, _streaming([EVENT]), b'{"stream": true}')
    finally:
        gateway.decider.pool = "small"

    assert (status, headers["content-type"]) == (503, "application/json")
    assert json.loads(got)["error"]["code"] == "service_unavailable"


async def test_trailers_and_an_early_end_of_the_answer_do_no_harm(gateway: Gateway) -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-a\r\n\r\n2\r\nok\r\n0\r\nx-a: b\r\n\r\n"
        )
        writer.close()

    async with await asyncio.start_server(early, "127.0.0.1", port := free_port()):
        address = f"127.0.0.1:{port}"
        gateway.control.server.publish(gateway.snapshot(address, *(engine.address for engine in gateway.engines)))
        gateway.decider.destinations = address
        await asyncio.sleep(0.5)
        url = f"http://127.0.0.1:{gateway.config.listener.port}{CHAT}"
        async with gateway.session.post(url, data=b"{}") as response:
            assert (response.status, await response.read()) == (200, b"ok")
    gateway.decider.destinations = gateway.engines[1].address
