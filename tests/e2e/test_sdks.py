"""The openai and anthropic libraries as they are, sync and async: tools, streams, errors, retries and timeouts."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import MessageParam, ToolParam
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.e2e.sdk_engine import sdk_engine
from tests.e2e.stack import Stack, configuration, up

ASKED: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the weather in Paris?"}]
PARAMETERS: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[ChatCompletionToolParam] = [
    {"type": "function", "function": {"name": "weather", "description": "Tells the weather.", "parameters": PARAMETERS}}
]
ITS_ASKED: list[MessageParam] = [{"role": "user", "content": "What is the weather in Paris?"}]
ITS_TOOLS: list[ToolParam] = [{"name": "weather", "description": "Tells the weather.", "input_schema": PARAMETERS}]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with sdk_engine() as port:
        config = configuration([port], engine="none")
        config["pools"][0]["models"] = ["m", "claude-*"]
        config["pools"][0]["retries"] = 0
        with up(tmp_path_factory.mktemp("sdks"), config) as running:
            yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=stack.clients, api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=stack.clients, api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(stack: Stack) -> Iterator[anthropic.Anthropic]:
    base = stack.clients.removesuffix("/v1")
    with anthropic.Anthropic(base_url=base, api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture
async def async_claude(stack: Stack) -> AsyncIterator[anthropic.AsyncAnthropic]:
    base = stack.clients.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=base, api_key="unused", max_retries=0) as client:
        yield client


def _call_of(answer: Any) -> Any:
    """Return the one call of a tool that a chat answer has."""
    (call,) = answer.choices[0].message.tool_calls
    assert (call.type, call.function.name) == ("function", "weather")
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    return call


def test_a_call_of_a_tool_comes_back_and_its_result_goes_in(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="m", messages=ASKED, tools=TOOLS, max_completion_tokens=50)
    call = _call_of(answer)
    result: list[ChatCompletionMessageParam] = [
        *ASKED,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call.id, "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    assert client.chat.completions.create(model="m", messages=result, tools=TOOLS, n=1).choices


def test_a_streamed_call_of_a_tool_is_put_together(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="m", messages=ASKED, tools=TOOLS) as stream:
        for _ in stream:
            pass
        _call_of(stream.get_final_completion())


async def test_the_async_sdk_gets_and_streams_calls_of_tools(async_client: openai.AsyncOpenAI) -> None:
    _call_of(await async_client.chat.completions.create(model="m", messages=ASKED, tools=TOOLS))
    arguments = ""
    async for chunk in await async_client.chat.completions.create(model="m", messages=ASKED, tools=TOOLS, stream=True):
        for piece in (chunk.choices[0].delta.tool_calls or ()) if chunk.choices else ():
            arguments += (piece.function and piece.function.arguments) or ""
    assert json.loads(arguments) == {"city": "Paris"}


async def test_a_hundred_async_streams_run_at_once(async_client: openai.AsyncOpenAI) -> None:
    async def one() -> int:
        stream = await async_client.chat.completions.create(model="m", messages=ASKED, stream=True)
        return len([chunk async for chunk in stream])

    counts = await asyncio.gather(*(one() for _ in range(100)))
    assert len(set(counts)) == 1
    assert counts[0] >= 5


def test_the_anthropic_sdk_gets_and_streams_the_use_of_a_tool(claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(model="claude-x", max_tokens=50, messages=ITS_ASKED, tools=ITS_TOOLS)
    (block,) = answer.content
    assert block.type == "tool_use"
    assert (block.name, block.input) == ("weather", {"city": "Paris"})
    result: list[MessageParam] = [
        *ITS_ASKED,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": block.id, "name": "weather", "input": {"city": "Paris"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}]},
    ]
    with claude.messages.stream(model="m", max_tokens=50, messages=result, tools=ITS_TOOLS) as stream:
        (streamed,) = stream.get_final_message().content
    assert streamed.type == "tool_use"
    assert streamed.input == {"city": "Paris"}


async def test_the_async_anthropic_sdk_gets_and_streams_the_use_of_a_tool(
    async_claude: anthropic.AsyncAnthropic,
) -> None:
    answer = await async_claude.messages.create(model="m", max_tokens=50, messages=ITS_ASKED, tools=ITS_TOOLS)
    assert answer.stop_reason == "tool_use"
    async with async_claude.messages.stream(model="m", max_tokens=50, messages=ITS_ASKED, tools=ITS_TOOLS) as stream:
        message = await stream.get_final_message()
    assert message.content[0].type == "tool_use"
    assert message.content[0].input == {"city": "Paris"}


ERRORS = [
    (400, openai.BadRequestError, anthropic.BadRequestError),
    (401, openai.AuthenticationError, anthropic.AuthenticationError),
    (403, openai.PermissionDeniedError, anthropic.PermissionDeniedError),
    (404, openai.NotFoundError, anthropic.NotFoundError),
    (409, openai.ConflictError, anthropic.ConflictError),
    (422, openai.UnprocessableEntityError, anthropic.UnprocessableEntityError),
    (429, openai.RateLimitError, anthropic.RateLimitError),
    (500, openai.InternalServerError, anthropic.InternalServerError),
    (503, openai.InternalServerError, anthropic.APIStatusError),
]


@pytest.mark.parametrize(("status", "one", "other"), ERRORS)
def test_an_engines_error_is_the_librarys_own_class(
    client: openai.OpenAI,
    claude: anthropic.Anthropic,
    status: int,
    one: type[openai.APIStatusError],
    other: type[anthropic.APIStatusError],
) -> None:
    with pytest.raises(one, match=f"the engine said {status}"):
        client.chat.completions.create(model="m", messages=ASKED, user=str(status))
    with pytest.raises(other, match=f"the engine said {status}"):
        claude.messages.create(model="m", max_tokens=1, messages=ITS_ASKED, metadata={"user_id": str(status)})


async def test_our_own_errors_are_the_librarys_classes_too(
    async_client: openai.AsyncOpenAI, async_claude: anthropic.AsyncAnthropic
) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await async_client.chat.completions.create(model="nothing", messages=ASKED, stream=True)
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    assert unknown.value.request_id
    with pytest.raises(openai.BadRequestError) as bad:
        await async_client.chat.completions.create(model="m", messages=ASKED, n=0)
    assert bad.value.param == "n"
    with pytest.raises(anthropic.NotFoundError):
        await async_claude.messages.create(model="nothing", max_tokens=1, messages=ITS_ASKED)
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        await async_claude.messages.create(model="m", max_tokens=0, messages=ITS_ASKED)


@pytest.mark.parametrize("megabytes", [34, 100])
def test_a_body_that_is_too_large_is_told_so(
    client: openai.OpenAI, claude: anthropic.Anthropic, megabytes: int
) -> None:
    text = "x" * (megabytes * 1_000_000)
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    assert (caught.value.status_code, caught.value.code) == (413, "request_too_large")
    with pytest.raises(anthropic.RequestTooLargeError):
        claude.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": text}])


def test_a_deadline_that_passed_is_a_server_error_that_libraries_retry(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "x" * 3_000_000}],
            extra_headers={"x-request-timeout": "0.001"},
        )
    assert caught.value.status_code == 504


def test_a_client_that_leaves_a_stream_leaves_nothing_behind(stack: Stack, client: openai.OpenAI) -> None:
    for _ in range(5):
        stream = client.chat.completions.create(model="m", messages=ASKED, stream=True)
        next(iter(stream))
        stream.close()
    stack.settle()
    assert stack.inflight() == {}
