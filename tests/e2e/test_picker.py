"""Tidegate as the endpoint picker of a gateway: a real Envoy that it does not configure."""

import asyncio
import gzip
import hashlib
import io
import json
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.picker_gateway import FULL_DUPLEX, Gateway, gateway, modes

TRANSPORTS = ("grpc", "h2")
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
NO_ENDPOINTS = {"x-llm-d-request-dropped-reason": "rejected-no-endpoints"}


@pytest.fixture(params=TRANSPORTS)
async def running(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path, request.param) as found:
        yield found


async def test_requests_are_picked_served_and_counted(running: Gateway) -> None:
    for number in range(4):
        async with running.client.post(running.chat, json=CHAT, headers={"x-user-data": "u"}) as answer:
            told = await answer.json()
        assert (answer.status, told["usage"]["prompt_tokens"]) == (200, 11), number
        assert answer.headers.getall("set-cookie") == ["a=1", "b=2"]
    assert [len(engine.got) for engine in running.engines] == [2, 2]
    for engine in running.engines:
        headers = engine.got[0]["headers"]
        assert headers["x-gateway-destination-endpoint"].split(",")[0] == f"127.0.0.1:{engine.port}"
        assert (headers["x-user-data"], headers["content-type"]) == ("u", "application/json")
    await running.until("tidegate_requests_total", 4, outcome="ok", code="200", pool="default")
    assert await running.sum("tidegate_prompt_tokens_total") == 44
    assert await running.sum("tidegate_completion_tokens_total") == 20
    assert await running.sum("tidegate_failovers_total") == 0
    assert await running.inflight() == 0


async def test_a_streamed_answer_passes_and_its_usage_is_learned_once(running: Gateway) -> None:
    body = {**CHAT, "stream": True}
    async with running.client.post(running.chat, data=json.dumps(body)) as answer:
        text = await answer.text()
    assert (text.count("data: "), text[-16:]) == (6, "\n\ndata: [DONE]\n\n")
    await running.until("tidegate_completion_tokens_total", 4)
    assert await running.sum("tidegate_prompt_tokens_total") == 7
    assert await running.sum("tidegate_time_to_first_token_seconds_count") == 1


async def test_a_body_of_twenty_megabytes_arrives_whole(running: Gateway) -> None:
    chat = {**CHAT, "messages": [{"role": "user", "content": "word " * 4_000_000}]}
    body = json.dumps(chat).encode()
    for path in ("/v1/chat/completions", "/anything"):
        async with running.client.post(running.url + path, data=io.BytesIO(body)) as answer:
            told = await answer.json()
        assert answer.status == 200
        assert (told["size"], told["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    await running.until("tidegate_inflight_reservations", 0)


async def test_a_chunked_body_with_trailers_or_without_any_byte_arrives(running: Gateway) -> None:
    host, port = running.url.removeprefix("http://").split(":")
    body = json.dumps(CHAT).encode()
    chunks = b"%x\r\n%s\r\n0\r\nx-sum: 1\r\n\r\n" % (len(body), body)
    for path, sent in ((b"/v1/chat/completions", chunks), (b"/else", b"0\r\n\r\n")):
        reader, writer = await asyncio.open_connection(host, int(port))
        head = b"POST %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n" % path
        writer.write(head + sent)
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200"), answer
    assert {engine.got[0]["size"] for engine in running.engines} == {len(body), 0}


async def test_a_compressed_body_is_read_and_arrives_as_it_was_sent(running: Gateway) -> None:
    plain = json.dumps({**CHAT, "messages": [{"role": "user", "content": "x " * 50_000}]}).encode()
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    async with running.client.post(running.chat, data=gzip.compress(plain), headers=headers) as answer:
        told = await answer.json()
    # The engine decodes what says that it is encoded.
    assert (answer.status, told["sha256"]) == (200, hashlib.sha256(plain).hexdigest())
    assert {engine.got[0]["headers"]["content-encoding"] for engine in running.engines if engine.got} == {"gzip"}
    await running.until("tidegate_requests_total", 1, outcome="ok")
    assert await running.sum("tidegate_prompt_tokens_estimated_total") > 10_000


async def test_a_request_without_a_body_is_picked_too(running: Gateway) -> None:
    async with running.client.get(f"{running.url}/health") as answer:
        assert (answer.status, (await answer.json())["size"]) == (200, 0)
    async with running.client.get(f"{running.url}/v1/models") as answer:
        assert (answer.status, (await answer.json())["object"]) == (200, "list")


async def test_a_client_that_leaves_while_its_body_is_held_leaves_nothing_behind(running: Gateway) -> None:
    host, port = running.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n" + b"{" * 400_000)
    await running.until("tidegate_ext_proc_inflight_streams", 1)
    writer.close()
    await running.until("tidegate_ext_proc_inflight_streams", 0)
    await running.until("tidegate_ext_proc_streams_total", 1, outcome="cancelled")
    assert await running.inflight() == 0
    assert [engine.got for engine in running.engines] == [[], []]


async def test_a_client_that_leaves_in_mid_answer_releases_its_reservation(running: Gateway) -> None:
    for engine in running.engines:
        engine.pause = 5.0
    async with running.client.post(running.chat, data=json.dumps({**CHAT, "stream": True})) as answer:
        await answer.content.readline()
        await running.until("tidegate_inflight_reservations", 1)
        answer.close()
    await running.until("tidegate_inflight_reservations", 0)
    await running.until("tidegate_requests_total", 1, outcome="unknown", code="200")


async def test_what_is_refused_is_answered_by_the_gateway(running: Gateway) -> None:
    for body, status in ((b"{", 400), (b"x" * 40_000_000, 413)):
        async with running.client.post(running.chat, data=io.BytesIO(body)) as answer:
            assert (answer.status, (await answer.json())["error"]["type"]) == (status, "invalid_request_error")
    assert [engine.got for engine in running.engines] == [[], []]
    assert await running.inflight() == 0


async def test_with_the_picker_killed_nothing_gets_through(running: Gateway) -> None:
    for engine in running.engines:
        engine.pause = 1.0
    async with running.client.post(running.chat, data=json.dumps({**CHAT, "stream": True})) as answer:
        await answer.content.readline()
        running.picker.kill()
        # In full duplex the answer passes through the picker, and dies with it.
        with pytest.raises(aiohttp.ClientError):
            await answer.read()
    seen = sum(len(engine.got) for engine in running.engines)
    for _ in range(3):
        async with running.client.post(running.chat, json=CHAT) as answer:
            assert answer.status >= 500
    assert sum(len(engine.got) for engine in running.engines) == seen


async def test_a_picker_that_is_told_to_stop_lets_answers_end(running: Gateway) -> None:
    for engine in running.engines:
        engine.pause = 0.4
    async with running.client.post(running.chat, data=json.dumps({**CHAT, "stream": True})) as answer:
        await answer.content.readline()
        running.picker.process.send_signal(signal.SIGTERM)
        assert (await answer.text()).endswith("data: [DONE]\n\n")
    assert await asyncio.to_thread(running.picker.process.wait, 10) == 0


@pytest.mark.parametrize(
    ("request_mode", "response", "transport"),
    [
        ("NONE", "NONE", "grpc"),
        ("NONE", "STREAMED", "h2"),
        ("STREAMED", "STREAMED", "grpc"),
        ("STREAMED", "NONE", "h2"),
        ("BUFFERED", "NONE", "grpc"),
        ("BUFFERED", "BUFFERED", "h2"),
        ("BUFFERED_PARTIAL", "STREAMED", "grpc"),
    ],
)
async def test_every_mode_is_served(tmp_path: Path, request_mode: str, response: str, transport: str) -> None:
    async with gateway(tmp_path, transport, mode=modes(request_mode, response)) as running:
        for size in (10, 300_000):
            chat = {**CHAT, "messages": [{"role": "user", "content": "x " * size}]}
            body = json.dumps(chat).encode()
            async with running.client.post(running.chat, data=io.BytesIO(body)) as answer:
                assert (answer.status, (await answer.json())["size"]) == (200, len(body))
        assert [len(engine.got) for engine in running.engines] == [1, 1]
        await running.until("tidegate_requests_total", 2, outcome="ok", code="200")
        await running.until("tidegate_inflight_reservations", 0)
        assert await running.sum("tidegate_prompt_tokens_total") == (0 if response == "NONE" else 22)


WITHOUT_RESPONSE = {"response_header_mode": "SKIP", "response_body_mode": "NONE", "response_trailer_mode": "SKIP"}


@pytest.mark.parametrize(
    ("mode", "inflight"),
    [
        (FULL_DUPLEX, 1),
        ({**FULL_DUPLEX, "response_body_mode": "STREAMED"}, 1),
        ({**FULL_DUPLEX, **WITHOUT_RESPONSE}, 0),
        ({**modes("BUFFERED", "NONE"), **WITHOUT_RESPONSE}, 1),
    ],
    ids=["full duplex", "response streamed", "response not shown", "buffered, response not shown"],
)
async def test_a_reservation_lives_as_long_as_envoy_holds_the_stream(
    tmp_path: Path, mode: Mapping[str, str], inflight: int
) -> None:
    async with gateway(tmp_path, "h2", mode=mode) as running:
        for engine in running.engines:
            engine.pause = 0.5
        async with running.client.post(running.chat, data=json.dumps({**CHAT, "stream": True})) as answer:
            await answer.content.readline()
            await asyncio.sleep(0.2)
            assert await running.inflight() == inflight
            await answer.read()
        await running.until("tidegate_inflight_reservations", 0)


async def test_a_burst_spreads_and_leaves_nothing_behind(running: Gateway) -> None:
    async def ask() -> int:
        async with running.client.post(running.chat, json=CHAT) as answer:
            await answer.read()
            return answer.status

    assert await asyncio.gather(*(ask() for _ in range(200))) == [200] * 200
    assert [len(engine.got) for engine in running.engines] == [100, 100]
    await running.until("tidegate_requests_total", 200, outcome="ok")
    assert await running.inflight() == 0
    assert await running.sum("tidegate_ext_proc_inflight_streams") == 0


@pytest.mark.parametrize("hint", [[], ["127.0.0.1:1"], "nonsense"])
async def test_where_the_gateway_allows_nobody_the_answer_is_503(tmp_path: Path, hint: Any) -> None:
    async with gateway(tmp_path, "h2", hint=hint) as running:
        for path in ("/v1/chat/completions", "/anything"):
            async with running.client.post(running.url + path, json=CHAT) as answer:
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
                assert NO_ENDPOINTS.items() <= answer.headers.items()
        async with running.client.get(f"{running.url}/health") as answer:
            assert answer.status == 503
        assert [engine.got for engine in running.engines] == [[], []]


async def test_only_what_the_gateway_allows_is_picked(tmp_path: Path) -> None:
    async with gateway(tmp_path, "grpc", hint=lambda ports: [f"127.0.0.1:{ports[1]}"]) as running:
        for _ in range(3):
            async with running.client.post(running.chat, json=CHAT) as answer:
                assert answer.status == 200
        assert [len(engine.got) for engine in running.engines] == [0, 3]
        assert (
            running.engines[1].got[0]["headers"]["x-gateway-destination-endpoint"]
            == f"127.0.0.1:{running.engines[1].port}"
        )


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_next_endpoint_named_takes_over_and_is_known_to_have(tmp_path: Path, transport: str) -> None:
    async with gateway(tmp_path, transport, picker={"test_header": "obey"}) as running:
        first, second = running.engines
        first.fail = 503
        headers = {"test-epp-endpoint-selection": "127.0.0.1"}
        async with running.client.post(running.chat, json=CHAT, headers=headers) as answer:
            assert (answer.status, answer.headers["x-engine"]) == (200, str(second.port))
            assert answer.headers["x-conformance-test-served-endpoint"] == f"127.0.0.1:{second.port}"
        assert (len(first.got), len(second.got)) == (1, 1)
        await running.until("tidegate_failovers_total", 1)
        assert await running.inflight() == 0


async def test_conformance_tests_choose_the_endpoint_by_a_header(tmp_path: Path) -> None:
    async with gateway(tmp_path, "grpc", engine_count=3, picker={"test_header": "obey"}) as running:
        for engine in (*running.engines, *running.engines):
            headers = {"test-epp-endpoint-selection": f"127.0.0.1:{engine.port}"}
            async with running.client.post(running.chat, json=CHAT, headers=headers) as answer:
                assert answer.headers["x-engine"] == str(engine.port)
        async with running.client.post(
            running.chat, json=CHAT, headers={"test-epp-endpoint-selection": "10.0.0.1"}
        ) as no:
            assert no.status == 503


async def test_more_bodies_than_may_be_held_are_answered_with_429(tmp_path: Path) -> None:
    async with gateway(tmp_path, "h2", picker={"max_held_bytes": 100_000}) as running:
        async with running.client.post(running.chat, data=io.BytesIO(b"x" * 300_000)) as answer:
            assert answer.status == 429
            assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-saturated"
        async with running.client.post(running.chat, json=CHAT) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(("mode", "answered"), [(FULL_DUPLEX, "m"), (modes("BUFFERED", "STREAMED"), "another")])
async def test_a_model_is_renamed_on_its_way_and_back_where_the_answer_is_ours_to_send(
    tmp_path: Path, mode: Mapping[str, str], answered: str
) -> None:
    routes = [{"model": "m", "pool": "default", "rewrite_model": "another"}]
    async with gateway(tmp_path, "h2", mode=mode, engine_count=1, routes=routes) as running:
        async with running.client.post(running.chat, json=CHAT) as answer:
            told = await answer.json()
        sent = json.dumps({**CHAT, "model": "another"}).encode()
        assert (answer.status, told["size"], told["model"]) == (200, len(sent), answered)
        assert told["sha256"] == hashlib.sha256(sent).hexdigest()
        async with running.client.post(running.chat, data=json.dumps({**CHAT, "stream": True})) as answer:
            events = [json.loads(line[6:]) for line in (await answer.text()).splitlines() if line.startswith("data: {")]
        assert [event.get("model") for event in events] == [answered] * 4 + [None]
        await running.until("tidegate_requests_total", 2, outcome="ok", model="another")
