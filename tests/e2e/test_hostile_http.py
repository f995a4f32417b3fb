"""HTTP as no library writes it: smuggling, slowness, size, methods and paths, byte by byte to a real Envoy."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import pytest
import pytest_asyncio

import xds.listener
from tests.e2e.gateway import CHAT as PATH
from tests.e2e.gateway import MAX_BODY, Gateway, standing
from tests.e2e.raw_http import CHAT, Answer, send
from tests.ports import free_port

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: gateway\r\n\r\n"
SLOW = 2.0
"""Seconds for a whole request, in this test alone."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway() -> AsyncIterator[Gateway]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xds.listener, "REQUEST_SECONDS", SLOW)
        async with standing() as running:
            running.decider.destinations = running.engines[1].address
            yield running


pytestmark = pytest.mark.asyncio(loop_scope="module")


def _targets(gateway: Gateway) -> list[str]:
    targets = [target for engine in gateway.engines for target in engine.targets]
    for engine in gateway.engines:
        engine.targets.clear()
    return targets


def _is_an_error(answer: Answer) -> bool:
    """Whether the first answer has an error of OpenAI's form."""
    body, _, _ = answer.body.partition(b"HTTP/1.1 ")
    error = json.loads(body)["error"]
    return {"message", "type", "param", "code"} == set(error)


async def _still_serves(gateway: Gateway) -> bool:
    return (await gateway.post())[0] == 200


FRAMING = {
    "a body longer than its length": b"content-length: 2\r\n\r\n{}" + SMUGGLED[:20],
    "a length and chunks": b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunks and a length": b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "an unknown encoding": b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two encodings": b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "encoding with a vertical tab": b"transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "encoding before a colon's space": b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths": b"content-length: 2\r\ncontent-length: 40\r\n\r\n{}" + SMUGGLED,
    "a list of lengths": b"content-length: 2, 40\r\n\r\n{}" + SMUGGLED,
    "a signed length": b"content-length: +2\r\n\r\n{}" + SMUGGLED,
    "a negative length": b"content-length: -2\r\n\r\n{}" + SMUGGLED,
    "a length in hexadecimal": b"content-length: 0x2\r\n\r\n{}" + SMUGGLED,
    "a chunk of a signed size": b"transfer-encoding: chunked\r\n\r\n+2\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
    "a chunk of a huge size": b"transfer-encoding: chunked\r\n\r\nfffffffffffffffffff\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
    "a chunk that ends elsewhere": b"transfer-encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n" + SMUGGLED,
    "a megabyte beside a chunk": b"transfer-encoding: chunked\r\n\r\n2;" + b"x" * 1_000_000 + b"\r\n{}\r\n0\r\n\r\n",
    "a folded header": b"x-a: b\r\n content-length: 40\r\ncontent-length: 2\r\n\r\n{}" + SMUGGLED,
    "a NUL in a header": b"x-a: b\0c\r\ncontent-length: 2\r\n\r\n{}" + SMUGGLED,
    "a bare CR in a header": b"x-a: b\rtransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n{}" + SMUGGLED,
    "a line without a colon": b"nonsense\r\ncontent-length: 2\r\n\r\n{}" + SMUGGLED,
}


@pytest.mark.parametrize("case", FRAMING)
async def test_nothing_is_smuggled_behind_a_request(gateway: Gateway, case: str) -> None:
    _targets(gateway)

    answer = await send(gateway.config.listener.port, CHAT + FRAMING[case], wait=1.5)

    # What follows is refused, or a request of its own, about which the stub was asked (it decides on bodies alone);
    # it is never read as a part of the first, or as a second one by the engine alone.
    assert answer.statuses, "an answer, always"
    assert set(answer.statuses) <= {200, 400, 413, 431, 501, 503}
    assert answer.statuses[0] != 503
    assert set(_targets(gateway)) <= {f"POST {PATH}"}
    assert await _still_serves(gateway)


async def test_a_slow_body_is_given_up_in_time(gateway: Gateway) -> None:
    pieces = [CHAT + b"transfer-encoding: chunked\r\n\r\n", *[b"1\r\n{\r\n"] * 20]
    began = time.monotonic()

    answer = await send(gateway.config.listener.port, *pieces, pause=0.4, wait=1.0)

    assert (answer.statuses, answer.closed) == ([408], True)
    assert _is_an_error(answer)
    assert SLOW * 0.9 < time.monotonic() - began < SLOW + 6


async def test_slow_headers_are_given_up_too(gateway: Gateway) -> None:
    answer = await send(gateway.config.listener.port, CHAT, *[b"x-a: b\r\n"] * 20, pause=0.4, wait=1.0)

    assert (answer.statuses, answer.closed) == ([408], True)


@pytest.mark.parametrize("ending", [b"\r", b"\n", b"\r\n "])
async def test_what_ends_no_header_does_not_begin_another_at_the_engine(gateway: Gateway, ending: bytes) -> None:
    """Seen by an engine that reads any of them as the end of a line."""
    seen: list[bytes] = []

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(engine, "127.0.0.1", port := free_port()):
        gateway.control.server.publish(gateway.snapshot(f"127.0.0.1:{port}"))
        gateway.decider.destinations = f"127.0.0.1:{port}"
        await asyncio.sleep(0.5)
        odd = b"x-a: b" + ending + b"x-gateway-destination-endpoint: evil\r\ncontent-length: 2\r\n\r\n{}"
        answer = await send(gateway.config.listener.port, CHAT + odd, wait=1.0)
    gateway.decider.destinations = gateway.engines[1].address
    gateway.control.server.publish(gateway.snapshot(*(engine.address for engine in gateway.engines)))
    await asyncio.sleep(0.5)

    assert answer.statuses in ([200], [400])
    for head in seen:
        lines = re.split(rb"[\r\n]+", head)
        assert not any(line.startswith(b"x-gateway-") for line in lines), head


@pytest.mark.parametrize("size", [MAX_BODY + 1, MAX_BODY * 4])
@pytest.mark.parametrize("expect", [b"", b"expect: 100-continue\r\n"])
async def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(
    gateway: Gateway, size: int, expect: bytes
) -> None:
    bodies = len(gateway.decider.bodies)

    answer = await send(gateway.config.listener.port, CHAT + expect + b"content-length: %d\r\n\r\n" % size, wait=1.0)

    assert answer.statuses[-1] == 413
    assert b'"request_too_large"' in answer.raw
    assert len(gateway.decider.bodies) == bodies


async def test_a_body_that_does_not_say_is_refused_as_soon_as_it_is_too_large(gateway: Gateway) -> None:
    chunk = b"%x\r\n" % 1_000_000 + b"x" * 1_000_000 + b"\r\n"

    answer = await send(
        gateway.config.listener.port, CHAT + b"transfer-encoding: chunked\r\n\r\n", *[chunk] * 33, b"0\r\n\r\n"
    )

    assert answer.statuses == [413]
    assert _is_an_error(answer)
    assert await _still_serves(gateway)


EMPTY = {
    "of no length": b"content-length: 0\r\n\r\n",
    "of no chunks": b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "that is not there": b"\r\n",
}


@pytest.mark.parametrize(
    ("request_bytes", "statuses"),
    [
        (b"CONNECT /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n", {400, 405}),
        (b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nhost: 169.254.169.254:80\r\n\r\n", {403, 405}),
        (b"TRACE /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n", {400, 404, 405, 501, 503, 200}),
        (b"BREW / HTTP/1.1\r\nhost: x\r\n\r\n", {400, 404, 405, 501, 503, 200}),
        (b"GET / HTTP/1.1\r\n\r\n", {400}),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", {400, 503, 200}),
        (b"GET / HTTP/3.7\r\nhost: x\r\n\r\n", {400, 426, 505}),
        (b"\x16\x03\x01\x02\x00\x01\x00", {400}),
        (b"GET http://169.254.169.254/latest HTTP/1.1\r\nhost: x\r\n\r\n", {400, 404, 503, 200}),
        (b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n", {400, 404, 405, 503, 200}),
        (b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", {400, 403, 503, 200}),
        (b"GET /v1/models HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", {400, 403, 503, 200}),
    ],
)
async def test_every_method_and_form_of_a_request_has_a_defined_answer_at_once(
    gateway: Gateway, request_bytes: bytes, statuses: set[int]
) -> None:
    _targets(gateway)
    began = time.monotonic()

    answer = await send(gateway.config.listener.port, request_bytes, wait=0.8)

    assert answer.statuses or answer.closed
    assert set(answer.statuses) <= statuses
    assert time.monotonic() - began < 2
    # The stub decides on everything: what it was not asked about goes nowhere.
    assert not any("169.254" in target for target in _targets(gateway))


@pytest.mark.parametrize(
    "lines",
    [
        [f"x-{number}: a" for number in range(101)],
        ["cookie: " + "a" * 62_000],
        ["x-a: " + "a" * 70_000],
    ],
    ids=["101 headers", "61 KiB of cookie", "a header of 70 KB"],
)
async def test_too_many_or_too_large_headers_are_431(gateway: Gateway, lines: list[str]) -> None:
    head = CHAT + "".join(f"{line}\r\n" for line in lines).encode() + b"content-length: 2\r\n\r\n{}"

    answer = await send(gateway.config.listener.port, head, wait=1.0)

    assert answer.statuses == [431]
    assert _is_an_error(answer)


async def test_crumbs_of_cookies_end_their_stream_and_no_other(gateway: Gateway) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.config.listener.port)
    connection = h2.connection.H2Connection(h2.config.H2Configuration(validate_outbound_headers=False))
    connection.initiate_connection()
    named = [(":method", "POST"), (":path", PATH), (":scheme", "http"), (":authority", "x")]
    connection.send_headers(1, named)
    connection.send_data(1, b"{}", end_stream=True)
    connection.send_headers(3, [*named, *[("cookie", "a")] * 5_000], end_stream=True)
    connection.send_headers(5, named)
    connection.send_data(5, b"{}", end_stream=True)
    writer.write(connection.data_to_send())
    statuses: dict[int, int] = {}
    ended: set[int] = set()
    async with asyncio.timeout(10):
        while ended != {1, 3, 5}:
            data = await reader.read(65_536)
            if not data:
                break
            for event in connection.receive_data(data):
                match event:
                    case h2.events.ResponseReceived():
                        status = dict(event.headers or [])[b":status"]
                        statuses[event.stream_id or 0] = int(status)
                    case h2.events.StreamEnded() | h2.events.StreamReset():
                        ended.add(event.stream_id or 0)
            writer.write(connection.data_to_send())
    writer.close()
    assert (statuses.get(1), statuses.get(5)) == (200, 200)
    assert statuses.get(3) in {None, 431}
    assert await _still_serves(gateway)
