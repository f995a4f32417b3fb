"""In how many exchanges a real Envoy asks: one where a body is announced, two where it may or may not come."""

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest

from tests.e2e.stack import MODEL, Stack, configuration, engines, fetch, up

CHAT = "/v1/chat/completions"
BODY = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).encode()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("exchanges")
    with engines(folder, "h100") as ports, up(folder, configuration(ports)) as running:
        yield running


def asked(stack: Stack) -> int:
    """How many messages ext_proc was sent."""
    page = f"http://127.0.0.1:{stack.config['envoy']['admin_port']}/stats?filter=ext_proc.stream_msgs_sent&format=json"
    _, stats, _ = fetch(page)
    return sum(stat["value"] for stat in stats["stats"])


def over_http1(stack: Stack, request: bytes) -> tuple[int, Any]:
    """Send raw bytes; return the status and the JSON of the answer."""
    with socket.create_connection(("127.0.0.1", stack.config["listener"]["port"]), timeout=10) as client:
        client.sendall(request)
        answer = b""
        while chunk := client.recv(65_536):
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head:
        body = b"".join(body.split(b"\r\n")[1::2])
    return int(head.split(b" ", 2)[1]), json.loads(body)


def http1(*headers: str, body: bytes = b"", method: str = "POST", path: str = CHAT) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: x", "connection: close", "content-type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def over_http2(stack: Stack, headers: Mapping[str, str], body: bytes | None) -> tuple[int, Any]:
    """Send one request over HTTP/2, its end in a frame of its own; return the status and the JSON of the answer."""
    client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    client.initiate_connection()
    client.send_headers(1, [*headers.items()], end_stream=body is None)
    if body is not None:
        client.send_data(1, body)
        client.end_stream(1)
    status, answer, over = 0, b"", False
    with socket.create_connection(("127.0.0.1", stack.config["listener"]["port"]), timeout=10) as transport:
        while not over:
            transport.sendall(client.data_to_send())
            for event in client.receive_data(transport.recv(65_536)):
                match event:
                    case h2.events.ResponseReceived():
                        status = int(next(value for name, value in event.headers or () if str(name) == ":status"))
                    case h2.events.DataReceived():
                        answer += event.data or b""
                    case h2.events.StreamEnded() | h2.events.StreamReset():
                        over = True
        with contextlib.suppress(OSError):
            transport.sendall(client.data_to_send())
    return status, json.loads(answer)


def pseudo(method: str = "POST", **more: str) -> dict[str, str]:
    return {
        ":method": method,
        ":scheme": "http",
        ":authority": "x",
        ":path": CHAT,
        "content-type": "application/json",
        **more,
    }


@pytest.mark.parametrize(
    "request_",
    [
        http1(f"content-length: {len(BODY)}", body=BODY),
        http1(f"Content-Length: 00{len(BODY)}", body=BODY),
    ],
    ids=["length", "length-with-zeros"],
)
def test_an_announced_body_is_asked_about_in_one_exchange(stack: Stack, request_: bytes) -> None:
    before = asked(stack)
    status, answer = over_http1(stack, request_)
    assert (status, answer["object"]) == (200, "chat.completion"), answer
    assert asked(stack) - before == 1


@pytest.mark.parametrize(
    "request_",
    [
        http1("content-length: 0"),
        http1(),
        http1("transfer-encoding: chunked", body=b"0\r\n\r\n"),
    ],
    ids=["length-0", "neither", "chunked"],
)
def test_a_post_without_a_body_is_told_so(stack: Stack, request_: bytes) -> None:
    status, answer = over_http1(stack, request_)
    assert (status, answer["error"]["code"]) == (400, "empty_body")


@pytest.mark.parametrize("length", [f"content-length: {len(BODY)}", "transfer-encoding: chunked"])
@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("content-type: \xff", 400),  # by the engine, which is asked
        ("anthropic-version: \xff", 200),
        ("content-encoding: \xff", 415),
    ],
)
def test_a_header_that_is_no_utf_8_is_read_in_either_way(stack: Stack, length: str, header: str, status: int) -> None:
    body = BODY if "length" in length else b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    found, answer = over_http1(stack, http1(header, length, body=body))
    assert found == status, answer
    assert stack.total("tidegate_ext_proc_streams_total", outcome="failed") == 0


def test_a_list_is_given_whatever_bytes_its_version_has(stack: Stack) -> None:
    status, answer = over_http1(stack, http1("anthropic-version: \xff", method="GET", path="/v1/models"))
    assert (status, answer["has_more"]) == (200, False)


def test_a_body_in_chunks_is_asked_about_in_two(stack: Stack) -> None:
    before = asked(stack)
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    status, answer = over_http1(stack, http1("transfer-encoding: chunked", body=chunks))
    assert (status, answer["object"]) == (200, "chat.completion"), answer
    assert asked(stack) - before == 2


def test_a_body_over_http2_may_come_unannounced(stack: Stack) -> None:
    before = asked(stack)
    status, answer = over_http2(stack, pseudo(), BODY)
    assert (status, answer["object"]) == (200, "chat.completion"), answer
    assert asked(stack) - before == 2


def test_an_announced_body_over_http2_is_asked_about_in_one_exchange(stack: Stack) -> None:
    before = asked(stack)
    status, answer = over_http2(stack, pseudo(**{"content-length": str(len(BODY))}), BODY)
    assert (status, answer["object"]) == (200, "chat.completion"), answer
    assert asked(stack) - before == 1


@pytest.mark.parametrize("body", [None, b""], ids=["headers-alone", "an-empty-frame"])
def test_a_post_without_a_body_over_http2_is_told_so(stack: Stack, body: bytes | None) -> None:
    status, answer = over_http2(stack, pseudo(), body)
    assert (status, answer["error"]["code"]) == (400, "empty_body")


def test_a_method_that_no_api_has_is_refused_with_its_body_or_without(stack: Stack) -> None:
    with_body = over_http1(stack, http1(f"content-length: {len(BODY)}", body=BODY, method="PUT"))
    for status, answer in (with_body, over_http1(stack, http1(method="PUT")), over_http2(stack, pseudo("PUT"), None)):
        assert (status, answer["error"]["code"]) == (405, "method_not_allowed")
