"""Paths that only look like an API's, through a real Envoy and Tidegate: served as that API, or not at all."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.api_engine import api_engine
from tests.e2e.raw_http import send
from tests.e2e.stack import Stack, configuration, up

BODY = json.dumps({"model": "m", "input": "hello"}).encode()
RESPONSES = "/v1/embeddings"


@pytest.fixture(scope="module", params=["refuse", {"pool": "default"}], ids=["refused", "passed on"])
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with api_engine() as port:
        config = {**configuration([port], engine="none"), "unknown_paths": request.param}
        with up(tmp_path_factory.mktemp("paths"), config) as running:
            yield running


async def _ask(stack: Stack, target: str, method: str = "POST", body: bytes = BODY) -> tuple[int, Any]:
    head = f"{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    answer = await send(stack.config["listener"]["port"], head.encode("latin-1") + body, wait=5.0)
    assert len(answer.statuses) == 1, answer.raw
    start, end = answer.raw.find(b"{"), answer.raw.rfind(b"}")
    return answer.statuses[0], json.loads(answer.raw[start : end + 1]) if start >= 0 else None


@pytest.mark.parametrize(
    "target",
    [
        *("//v1//embeddings", "/v1/./embeddings", "/v1/x/../embeddings", "/../../v1/embeddings", "/v1/%2e/embeddings"),
        *("http://169.254.169.254/v1/embeddings", "/v1/embeddings?x=/../admin&y=%2f", "/v1/embeddings?"),
    ],
)
async def test_another_spelling_of_an_apis_path_is_that_api_to_the_engine_too(stack: Stack, target: str) -> None:
    status, answer = await _ask(stack, target)

    assert status == 200
    assert answer["path"].partition("?")[0] == RESPONSES


@pytest.mark.parametrize(
    "target",
    [
        *("/v1/..%2fadmin", "/v1/embeddings%2f", "/v1%2Fembeddings", "/v1/..%5cadmin", "/v1/%2e%2e%2fadmin"),
        *("/v1/embeddings%00", "/v1/embeddings%00/x", "/v1/embeddings\\..\\admin%2f"),
    ],
)
async def test_an_escape_that_an_engine_might_read_as_another_path_is_refused(stack: Stack, target: str) -> None:
    status, answer = await _ask(stack, target)

    assert status in {400, 404}
    assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "target", ["/v1/embeddings;x=1", "/V1/Embeddings", "/v1/embeddings/", "/admin", "/v1/embeddings%20"]
)
async def test_what_is_no_apis_path_is_refused_or_passed_on_as_the_configuration_says(
    stack: Stack, target: str
) -> None:
    status, answer = await _ask(stack, target)

    if stack.config["unknown_paths"] == "refuse":
        assert (status, answer["error"]["code"]) == (404, "unknown_url")
    else:
        assert (status, answer["path"]) == (200, target.replace("%20", " ") if " " in answer["path"] else target)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", "HEAD"])
async def test_a_method_that_is_not_served_is_told_which_is(stack: Stack, method: str) -> None:
    status, answer = await _ask(stack, RESPONSES, method, b"")

    assert status in {405, 400, 501}
    assert method == "HEAD" or answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("target", ["x:443", "169.254.169.254:80", "/v1/embeddings"])
async def test_a_tunnel_is_refused_at_once(stack: Stack, target: str) -> None:
    answer = await send(
        stack.config["listener"]["port"], f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n".encode(), wait=1.0
    )

    assert answer.statuses in ([400], [403], [405])


@pytest.mark.parametrize(
    "body",
    [b"content-length: 0\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n", b"\r\n"],
    ids=["of no length", "of no chunks", "that is not there"],
)
async def test_an_empty_body_is_the_same_however_it_is_sent(stack: Stack, body: bytes) -> None:
    answer = await send(
        stack.config["listener"]["port"], b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\n" + body, wait=1.0
    )

    assert answer.statuses == [400]
    assert json.loads(answer.body)["error"]["code"] == "empty_body"


async def test_keys_are_told_apart_by_their_case(stack: Stack) -> None:
    assert (await _ask(stack, RESPONSES, body=b'{"Model": "a", "model": "b", "input": "x"}'))[0] == 200
    status, answer = await _ask(stack, RESPONSES, body=b'{"Model": "a", "input": "x"}')
    assert (status, answer["error"]["param"]) == (400, "model")
