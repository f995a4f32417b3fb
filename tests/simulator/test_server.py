"""A simulated engine as its clients see it."""

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import openai
import pytest

from tests.simulator.engines import serving, settings
from tidegate.simulator.profiles import PROFILES
from tidegate.simulator.server import SERVED_BY, ListenError

MODEL = "sim-llama-3.1-8b"
HELLO: list[Any] = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with serving(settings()) as (base,):
        yield base


@pytest.fixture
async def http(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(url) as session:
        yield session


@pytest.fixture
async def sdk(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def _events(answer: aiohttp.ClientResponse) -> list[Any]:
    """Return what a whole stream says; its last event must be ``[DONE]``."""
    parts = (await answer.text()).split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


async def test_a_chat_through_the_sdk(sdk: openai.AsyncOpenAI) -> None:
    answer = await sdk.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=5)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (12, 5, 17)
    assert answer.choices[0].finish_reason == "length"
    assert len((answer.choices[0].message.content or "").split()) == 5


async def test_a_streamed_chat_through_the_sdk(sdk: openai.AsyncOpenAI) -> None:
    stream = await sdk.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=5, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert (deltas[0].role, deltas[0].content) == ("assistant", "")
    assert [len((delta.content or "").split()) for delta in deltas[1:]] == [1] * 5
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5
    assert len({chunk.id for chunk in chunks}) == 1


async def test_the_same_answer_is_given_streamed_and_whole(sdk: openai.AsyncOpenAI) -> None:
    whole = await sdk.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=8)
    stream = await sdk.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=8, stream=True)
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == whole.choices[0].message.content


async def test_a_completion_has_sixteen_tokens_unless_told_otherwise(sdk: openai.AsyncOpenAI) -> None:
    answer = await sdk.completions.create(model=MODEL, prompt="hello there")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 16)
    assert len(answer.choices[0].text.split()) == 16


async def test_a_streamed_completion_has_no_role_and_one_event_for_each_token(sdk: openai.AsyncOpenAI) -> None:
    stream = await sdk.completions.create(model=MODEL, prompt=[5, 6, 7], max_tokens=4, stream=True)
    chunks = [chunk async for chunk in stream]
    assert [len(chunk.choices[0].text.split()) for chunk in chunks] == [1] * 4
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "length"]


async def test_several_prompts_and_choices_are_numbered_and_their_prompts_counted_once(
    sdk: openai.AsyncOpenAI,
) -> None:
    answer = await sdk.completions.create(model=MODEL, prompt=["one two", "six"], n=2, max_tokens=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len({choice.text for choice in answer.choices[:2]}) == 2
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2 + 1, 4 * 3)


async def test_several_choices_can_be_streamed(sdk: openai.AsyncOpenAI) -> None:
    stream = await sdk.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=3, n=2, stream=True)
    texts = ["", ""]
    reasons: list[str | None] = [None, None]
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert [len(text.split()) for text in texts] == [3, 3]
    assert reasons == ["length", "length"]


async def test_a_chat_without_a_limit_ends_by_itself(url: str) -> None:
    async with serving(settings(mean_output_tokens=10.0)) as (base,), aiohttp.ClientSession(base) as http:
        answer = await http.post("/v1/chat/completions", json={"messages": HELLO, "stream": True})
        events = await _events(answer)
    last = events[-1]["choices"][0]
    assert (last["delta"], last["finish_reason"]) == ({"content": ""}, "stop")


async def test_ignore_eos_fills_the_limit(http: aiohttp.ClientSession) -> None:
    body = {"prompt": "x", "max_tokens": 700, "ignore_eos": True}
    answer = await (await http.post("/v1/completions", json=body)).json()
    assert answer["usage"]["completion_tokens"] == 700
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_a_repeated_prompt_is_cached(http: aiohttp.ClientSession) -> None:
    body = {"prompt": list(range(100)), "max_tokens": 1}
    first = await (await http.post("/v1/completions", json=body)).json()
    second = await (await http.post("/v1/completions", json=body)).json()
    assert first["usage"]["prompt_tokens_details"] is None
    assert second["usage"]["prompt_tokens_details"] == {"cached_tokens": 96}


async def test_the_next_turn_of_a_conversation_finds_the_last_answer_cached(sdk: openai.AsyncOpenAI) -> None:
    first = await sdk.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=100, extra_body={"ignore_eos": 1})
    reply = {"role": "assistant", "content": first.choices[0].message.content}
    more: list[Any] = [*HELLO, reply, {"role": "user", "content": "go on"}]
    second = await sdk.chat.completions.create(model=MODEL, messages=more, max_tokens=1)
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert second.usage.prompt_tokens_details.cached_tokens == (12 + 99) // 16 * 16


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_embeddings_count_prompt_tokens_alone(http: aiohttp.ClientSession, encoding: str) -> None:
    body = {"input": ["hello", "hello", "bye"], "dimensions": 8, "encoding_format": encoding}
    answer = await (await http.post("/v1/embeddings", json=body)).json()
    vectors = [item["embedding"] for item in answer["data"]]
    if encoding == "base64":
        vectors = [list(struct.unpack("8f", base64.b64decode(vector))) for vector in vectors]
    assert [len(vector) for vector in vectors] == [8, 8, 8]
    assert vectors[0] == vectors[1] != vectors[2]
    assert answer["usage"]["prompt_tokens"] == 2 + 2 + 1
    assert answer["usage"]["completion_tokens"] == 0


async def test_embeddings_through_the_sdk(sdk: openai.AsyncOpenAI) -> None:
    answer = await sdk.embeddings.create(model=MODEL, input="hello")
    assert len(answer.data[0].embedding) == 256


async def test_the_models_are_listed_with_their_context(sdk: openai.AsyncOpenAI) -> None:
    (model,) = (await sdk.models.list()).data
    assert model.id == MODEL
    assert model.model_extra is not None
    assert model.model_extra["max_model_len"] == 32_768


@pytest.mark.parametrize(
    ("path", "body"),
    [("/health", ""), ("/ping", ""), ("/version", '{"version":"0.32.0"}'), ("/load", '{"server_load":0}')],
)
async def test_the_small_pages_answer_as_vllm_does(http: aiohttp.ClientSession, path: str, body: str) -> None:
    answer = await http.get(path)
    assert (answer.status, await answer.text()) == (200, body)


async def test_every_answer_says_who_served_it(http: aiohttp.ClientSession, url: str) -> None:
    for path in ("/health", "/nowhere"):
        assert (await http.get(path)).headers[SERVED_BY] == url.removeprefix("http://")
    body = {"messages": HELLO, "stream": True, "max_tokens": 1}
    async with http.post("/v1/chat/completions", json=body) as answer:
        assert SERVED_BY in answer.headers


async def test_the_head_of_a_stream_comes_before_its_first_token() -> None:
    async with serving(settings(speed=0.02)) as (base,), aiohttp.ClientSession(base) as http:
        body = {"messages": HELLO, "stream": True, "max_tokens": 1}
        answer = await http.post("/v1/chat/completions", json=body)
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        first = asyncio.ensure_future(answer.content.readany())
        await asyncio.sleep(0.02)
        assert not first.done(), "a step takes 0.3 seconds here"
        assert b'"role":"assistant"' in await first
        await answer.read()


async def test_two_engines_are_apart_though_one_process_serves_them() -> None:
    fast, slow = settings(model="fast"), settings(model="slow", profile=PROFILES["rtx4090"])
    async with serving(fast, slow) as bases, aiohttp.ClientSession() as http:
        names = [(await (await http.get(f"{base}/v1/models")).json())["data"][0]["id"] for base in bases]
        assert names == ["fast", "slow"]
        await http.post(f"{bases[0]}/v1/completions", json={"prompt": "x"})
        pages = [await (await http.get(f"{base}/metrics")).text() for base in bases]
    assert 'generation_tokens_total{engine="0",model_name="fast"} 16.0' in pages[0]
    assert 'generation_tokens_total{engine="0",model_name="slow"} 0.0' in pages[1]


async def test_a_port_that_is_taken_is_said_and_starts_nothing(url: str) -> None:
    port = int(url.rsplit(":", 1)[1])
    with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
        async with serving(settings(), settings(port=port)):
            pytest.fail("it must not start")


async def test_stopping_cuts_what_is_under_way() -> None:
    async with aiohttp.ClientSession() as http:
        async with serving(settings(speed=1.0)) as (base,):
            body = {"prompt": "x", "max_tokens": 20_000, "ignore_eos": True, "stream": True}
            answer = await http.post(f"{base}/v1/completions", json=body)
            await answer.content.readany()
        with pytest.raises(aiohttp.ClientError):
            await answer.read()
        answer.close()
