"""Errors read as vLLM's do, by people and by SDKs."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import openai
import pytest

from tests.simulator.engines import serving, settings
from tidegate.simulator.profiles import PROFILES

SMALL = replace(PROFILES["h100"], max_num_seqs=1)
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with serving(settings(max_model_len=2048, profile=SMALL, max_queue=1, model="tiny")) as (base,):
        yield base


@pytest.fixture
async def http(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(url) as session:
        yield session


def _error(status: int, kind: str, message: str, param: str | None) -> tuple[int, Any]:
    return status, {"error": {"message": message, "type": kind, "param": param, "code": status}}


async def _post(http: aiohttp.ClientSession, body: Any, path: str = "/v1/chat/completions") -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else None
    answer = await http.post(
        path, data=data, json=None if data is not None else body, headers={"Content-Type": "application/json"}
    )
    assert answer.headers["Content-Type"] == "application/json"
    return answer.status, await answer.json()


LIMIT = "This model's maximum context length is 2048 tokens. However, "
SHORTEN = "Please reduce the length of the input prompt"
CASES = [
    pytest.param(
        {"messages": [{"role": "user", "content": "x" * 9000}]},
        _error(
            400,
            "BadRequestError",
            f"{LIMIT}your prompt contains at least 2049 input tokens, which exceeds this limit even without any output "
            f"tokens. {SHORTEN}. (parameter=input_tokens, value=2049)",
            "input_tokens",
        ),
        id="prompt too long",
    ),
    pytest.param(
        {"messages": HELLO, "max_tokens": 2040},
        _error(
            400,
            "BadRequestError",
            f"{LIMIT}you requested 2040 output tokens and your prompt contains at least 9 input tokens, for a total of "
            f"at least 2049 tokens. {SHORTEN} or the number of requested output tokens. "
            "(parameter=input_tokens, value=9)",
            "input_tokens",
        ),
        id="prompt and answer too long",
    ),
    pytest.param(
        {"messages": HELLO, "max_tokens": 5000},
        _error(
            400,
            "BadRequestError",
            "max_tokens=5000 cannot be greater than max_model_len=2048. Please request fewer output tokens. "
            "(parameter=max_tokens, value=5000)",
            "max_tokens",
        ),
        id="answer too long",
    ),
    pytest.param(
        {"messages": HELLO, "max_completion_tokens": 0, "max_tokens": 9},
        _error(
            400,
            "BadRequestError",
            "max_completion_tokens must be at least 1, got 0. (parameter=max_completion_tokens, value=0)",
            "max_completion_tokens",
        ),
        id="no answer wanted",
    ),
    pytest.param(
        {"messages": HELLO, "temperature": -1},
        _error(
            400,
            "BadRequestError",
            "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)",
            "temperature",
        ),
        id="temperature out of range",
    ),
    pytest.param(
        {"messages": HELLO, "n": 0},
        _error(400, "BadRequestError", "n must be at least 1, got 0. (parameter=n, value=0)", "n"),
        id="no choice wanted",
    ),
    pytest.param(
        {"messages": HELLO, "temperature": "hot"},
        _error(
            400,
            "Bad Request",
            "1 validation error:\n  {'type': 'float_parsing', 'loc': 'body.temperature', 'msg': 'Input should be a "
            "valid number, unable to parse string as a number', 'input': 'hot'}",
            "body.temperature",
        ),
        id="temperature of another type",
    ),
    pytest.param(
        {"model": "tiny"},
        _error(
            400,
            "Bad Request",
            "1 validation error:\n  {'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', "
            "'input': '<dict of 1 items>'}",
            "body.messages",
        ),
        id="messages missing",
    ),
    pytest.param(
        b'{"model":"tiny","max_tokens":5,"x":',
        _error(
            400,
            "Bad Request",
            "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body.35', 'msg': 'JSON decode error', "
            "'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting value'}}",
            "body.35",
        ),
        id="malformed",
    ),
    pytest.param(
        b"",
        _error(
            400,
            "Bad Request",
            "1 validation error:\n  {'type': 'missing', 'loc': 'body', 'msg': 'Field required', 'input': 'None'}",
            "body",
        ),
        id="empty",
    ),
    pytest.param(b'"\xff"', _error(400, "Bad Request", "There was an error parsing the body", None), id="not UTF-8"),
    pytest.param(
        b"[" * 100_000, _error(400, "Bad Request", "There was an error parsing the body", None), id="too deep"
    ),
    pytest.param(
        {"messages": HELLO, "stream_options": {"include_usage": True}},
        _error(
            400,
            "Bad Request",
            "1 validation error:\n  Stream options can only be defined when `stream=True`.",
            "stream_options",
        ),
        id="options without a stream",
    ),
    pytest.param(
        {"messages": HELLO, "model": "nope"},
        _error(404, "NotFoundError", "The model `nope` does not exist. Valid aliases: tiny.", "model"),
        id="unknown model",
    ),
]


@pytest.mark.parametrize(("body", "expected"), CASES)
async def test_a_bad_chat_is_answered_as_vllm_answers_it(
    http: aiohttp.ClientSession, body: Any, expected: tuple[int, Any]
) -> None:
    assert await _post(http, body) == expected


async def test_a_stream_that_is_refused_gets_an_ordinary_error(http: aiohttp.ClientSession) -> None:
    status, body = await _post(http, {"messages": HELLO, "max_tokens": 5000, "stream": True})
    assert (status, body["error"]["param"]) == (400, "max_tokens")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": ""}),
        ("/v1/completions", {"prompt": []}),
        ("/v1/completions", {"prompt": ["x", ""]}),
        ("/v1/embeddings", {"input": ""}),
        ("/v1/embeddings", {"input": "x" * 9000}),
    ],
    ids=str,
)
async def test_prompts_that_are_empty_or_too_long_are_refused(
    http: aiohttp.ClientSession, path: str, body: Any
) -> None:
    status, answer = await _post(http, body, path)
    assert (status, answer["error"]["type"]) == (400, "BadRequestError")


async def test_another_content_type_is_refused(http: aiohttp.ClientSession) -> None:
    answer = await http.post("/v1/chat/completions", data=b"{}", headers={"Content-Type": "text/plain"})
    message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
    assert (answer.status, await answer.json()) == _error(400, "Bad Request", message, None)


async def test_unknown_paths_and_methods_are_answered_by_the_framework(http: aiohttp.ClientSession) -> None:
    missing = await http.get("/v1/nothing")
    assert (missing.status, await missing.text()) == (404, '{"detail":"Not Found"}')
    wrong = await http.get("/v1/chat/completions")
    assert (wrong.status, await wrong.text()) == (405, '{"detail":"Method Not Allowed"}')
    assert wrong.headers["Allow"] == "POST"


async def test_a_full_queue_is_answered_with_503_streamed_or_not(http: aiohttp.ClientSession) -> None:
    long = {"prompt": "x", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    held = [await http.post("/v1/completions", json=long) for _ in range(2)]
    message = (
        "The engine is currently busy and cannot accept new requests. "
        "Please try again later or on a different instance."
    )
    for stream in (False, True):
        refused = await _post(http, {"messages": HELLO, "stream": stream})
        assert refused == _error(503, "Service Unavailable", message, None)
    page = await (await http.get("/metrics")).text()
    assert 'vllm:admission_rejections_total{model_name="tiny",reason="max_num_queued_reqs"} 2.0' in page
    for answer in held:
        answer.close()


async def test_room_in_the_queue_is_used_again_once_a_client_left(http: aiohttp.ClientSession) -> None:
    long = {"prompt": "x", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    held = [await http.post("/v1/completions", json=long) for _ in range(2)]
    for answer in held:
        answer.close()
    async with asyncio.timeout(5):
        while (await _post(http, {"messages": HELLO, "max_tokens": 1}))[0] != 200:
            pass


async def test_the_sdk_raises_the_exceptions_that_are_meant(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as sdk:
        message: Any = HELLO
        with pytest.raises(openai.BadRequestError):
            await sdk.chat.completions.create(model="tiny", messages=message, max_tokens=9999)
        with pytest.raises(openai.NotFoundError):
            await sdk.chat.completions.create(model="nope", messages=message)
