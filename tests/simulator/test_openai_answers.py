"""Answers have the fields that vLLM 0.32 gives, in its order."""

import json
from typing import Any

import pytest

from tidegate.simulator.openai_answers import ChatWording, CompletionWording, Text, Usage, embedding
from tidegate.simulator.stats import FinishReason

USAGE = Usage(prompt=10, completion=6, cached=0)
CHUNK = '{"id":"chatcmpl-1f","object":"chat.completion.chunk","created":7,"model":"m","choices":'
COMPLETION = '{"id":"cmpl-1f","object":"text_completion","created":7,"model":"m","choices":'


@pytest.fixture
def chat() -> ChatWording:
    return ChatWording("1f", 7, "m", stream=True)


@pytest.fixture
def completion() -> CompletionWording:
    return CompletionWording("1f", 7, "m")


def test_a_streamed_chat_begins_with_its_role(chat: ChatWording) -> None:
    delta = '"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
    expected = f'data: {CHUNK}[{{"index":0,{delta},"prompt_token_ids":null,"prompt_text":null}}\n\n'
    assert chat.opening(0) == expected


def test_a_token_of_a_chat_is_one_delta(chat: ChatWording) -> None:
    rest = '"delta":{"content":" cat"},"logprobs":null,"finish_reason":null,"token_ids":null}]}'
    assert chat.token(1, " cat") == f'data: {CHUNK}[{{"index":1,{rest}\n\n'


@pytest.mark.parametrize("fingerprint", [True, False])
def test_the_last_token_of_a_chat_says_why_it_ended(chat: ChatWording, fingerprint: bool) -> None:
    rest = '"delta":{"content":" cat"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}]'
    tail = ',"system_fingerprint":"vllm-0.32.0-simulated"}' if fingerprint else "}"
    expected = f'data: {CHUNK}[{{"index":0,{rest}{tail}\n\n'
    assert chat.last_token(0, " cat", FinishReason.LENGTH, fingerprint) == expected


def test_usage_comes_without_choices(chat: ChatWording) -> None:
    usage = '"usage":{"prompt_tokens":10,"total_tokens":16,"completion_tokens":6}'
    assert chat.usage(USAGE) == f'data: {CHUNK}[],{usage},"system_fingerprint":"vllm-0.32.0-simulated"}}\n\n'


def test_cached_tokens_stand_in_the_usage_where_there_are_any(chat: ChatWording) -> None:
    assert '"prompt_tokens_details":{"cached_tokens":4}' in chat.usage(Usage(10, 6, 4))


def test_a_completion_streams_text_alone(completion: CompletionWording) -> None:
    assert completion.opening(0) == ""
    rest = '"logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}\n\n'
    assert completion.token(0, " cat") == f'data: {COMPLETION}[{{"index":0,"text":" cat",{rest}'
    last = completion.last_token(0, " cat", FinishReason.STOP, fingerprint=True)
    assert last == f'data: {COMPLETION}[{{"index":0,"text":" cat",{rest}'.replace(
        '"finish_reason":null', '"finish_reason":"stop"'
    )


def _keys(value: Any) -> Any:
    """Return the keys of nested mappings, in order."""
    if isinstance(value, dict):
        return [(key, _keys(inner)) for key, inner in value.items()]
    return [_keys(inner) for inner in value] if isinstance(value, list) else None


def test_a_whole_chat_has_vllms_fields_in_its_order() -> None:
    # From a real engine, its values aside.
    real = (
        '{"id":0,"object":0,"created":0,"model":0,"choices":[{"index":0,"message":{"role":0,"content":0,"refusal":0,'
        '"annotations":0,"audio":0,"function_call":0,"reasoning":0},"logprobs":0,"finish_reason":0,"stop_reason":0,'
        '"token_ids":0,"routed_experts":0}],"service_tier":0,"system_fingerprint":0,"usage":{"prompt_tokens":0,'
        '"total_tokens":0,"completion_tokens":0,"prompt_tokens_details":0,"completion_tokens_details":0},'
        '"prompt_logprobs":0,"prompt_token_ids":0,"prompt_text":0,"kv_transfer_params":0,"ec_transfer_params":0,'
        '"metrics":0}'
    )
    ours = ChatWording("1f", 7, "m", stream=False).whole([Text(" a", FinishReason.STOP)], USAGE)
    assert _keys(json.loads(ours)) == _keys(json.loads(real))
    assert json.loads(ours)["object"] == "chat.completion"


def test_a_whole_completion_has_vllms_fields_in_its_order(completion: CompletionWording) -> None:
    real = (
        '{"id":0,"object":0,"created":0,"model":0,"choices":[{"index":0,"text":0,"logprobs":0,"finish_reason":0,'
        '"stop_reason":0,"token_ids":0,"prompt_logprobs":0,"prompt_token_ids":0,"routed_experts":0}],'
        '"service_tier":0,"system_fingerprint":0,"usage":{"prompt_tokens":0,"total_tokens":0,"completion_tokens":0,'
        '"prompt_tokens_details":0,"completion_tokens_details":0},"kv_transfer_params":0,"ec_transfer_params":0,'
        '"metrics":0}'
    )
    ours = completion.whole([Text(" a", FinishReason.STOP)], USAGE)
    assert _keys(json.loads(ours)) == _keys(json.loads(real))


def test_an_embedding_is_decided_by_its_prompt_and_lies_within_one() -> None:
    vector = embedding(b"text", 16, "float")
    assert isinstance(vector, list)
    assert vector == embedding(b"text", 16, "float") != embedding(b"other", 16, "float")
    assert all(-1.0 <= number <= 1.0 for number in vector)
