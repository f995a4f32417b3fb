"""The engines' own APIs: what each counts as, and that a model may be left out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.apis import APIS
from extproc.body import ParsedBody
from extproc.errors import ApiError
from extproc.usage import Usage
from tests.extproc.json_bodies import is_sound, requests
from tidegate.tokens.prompt import Conversation

HI = [{"role": "user", "content": "hi"}]
EXTRAS = {
    "/tokenize": "tokenize",
    "/v1/tokenize": "tokenize",
    "/detokenize": "detokenize",
    "/v1/detokenize": "detokenize",
    "/pooling": "pooling",
    "/classify": "classify",
    "/v1/classify": "classify",
    "/rerank": "rerank",
    "/v1/rerank": "rerank",
    "/v2/rerank": "rerank",
    "/score": "score",
    "/v1/score": "score",
    "/generate": "generate",
}


def _parse(path: str, **fields: Any) -> ParsedBody:
    parse = APIS[path].parse
    assert parse is not None
    return parse(json.dumps(fields).encode())


def test_each_is_served_at_every_path_that_engines_have_for_it() -> None:
    assert {path: APIS[path].name for path in EXTRAS} == EXTRAS
    assert all(APIS[path].usage is Usage.NONE for path in EXTRAS)


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
def test_what_is_done_by_a_tokeniser_is_no_load(path: str) -> None:
    parsed = _parse(path, model="m", prompt="word " * 1000, tokens=[1] * 1000, messages=HI)

    assert parsed == ParsedBody("m", (), max_output_tokens=0)


@pytest.mark.parametrize("path", ["/pooling", "/classify"])
def test_pooling_takes_texts_token_ids_and_conversations(path: str) -> None:
    assert _parse(path, model="m", input=["a", "b"]) == ParsedBody("m", ("a", "b"), max_output_tokens=0)
    assert _parse(path, input=[[1, 2], [3]]) == ParsedBody("", (), known_tokens=3, max_output_tokens=0)
    assert _parse(path, messages=HI) == ParsedBody("", ("hi",), max_output_tokens=0, conversation=Conversation(1))


def test_a_query_is_read_again_with_each_document() -> None:
    parsed = _parse("/rerank", model="m", query="x" * 40, documents=["a", {"text": "b"}, {"content": "c"}])

    assert parsed == ParsedBody("m", ("x" * 40, "a", "b", "c"), overhead_tokens=20, max_output_tokens=0)


@pytest.mark.parametrize(
    ("one", "other"), [("text_1", "text_2"), ("data_1", "data_2"), ("queries", "documents"), ("query", "items")]
)
def test_scoring_knows_its_sides_by_all_their_names(one: str, other: str) -> None:
    assert _parse("/score", **{one: "aaaa", other: ["b", "c"]}) == ParsedBody(
        "", ("aaaa", "b", "c"), overhead_tokens=1, max_output_tokens=0
    )
    assert _parse("/score", **{one: ["aaaa", "bbbb"], other: ["b", "c"]}).overhead_tokens == 0


def test_scoring_takes_token_ids() -> None:
    assert _parse("/v1/score", query=[1, 2, 3], items=[[4], [5, 6]]).known_tokens == 9


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"text": "once", "sampling_params": {"max_new_tokens": 5, "n": 2}, "stream": True},
            ParsedBody("", ("once",), max_output_tokens=5, stream=True, choices=2),
        ),
        ({"input_ids": [1, 2, 3]}, ParsedBody("", (), known_tokens=3)),
        ({"inputs": "once", "parameters": {"max_new_tokens": 7}}, ParsedBody("", ("once",), max_output_tokens=7)),
        (
            {"model": "m", "prompt": ["a", "b"], "max_tokens": 9, "n": 3},
            ParsedBody("m", ("a", "b"), max_output_tokens=9, choices=6),
        ),
        ({"text": "once", "sampling_params": [{"max_new_tokens": 5}]}, ParsedBody("", ("once",))),
    ],
    ids=["sglang", "sglang-ids", "tgi", "vllm", "sglang-batch"],
)
def test_generation_is_understood_in_each_engines_form(fields: dict[str, Any], expected: ParsedBody) -> None:
    assert _parse("/generate", **fields) == expected


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/tokenize", {"model": 1}, "model"),
        ("/pooling", {}, "input"),
        ("/classify", {"messages": []}, "messages"),
        ("/rerank", {"documents": ["a"]}, "query"),
        ("/rerank", {"query": "a"}, "documents"),
        ("/rerank", {"query": "a", "documents": ["a", 7]}, "documents[1]"),
        ("/rerank", {"query": "a", "documents": [{"content": 7}]}, "documents[0].content"),
        ("/score", {}, "text_1"),
        ("/score", {"queries": "a"}, "documents"),
        ("/score", {"text_1": 7, "text_2": "a"}, "text_1"),
        ("/generate", {}, "text"),
        ("/generate", {"prompt": 7}, "prompt"),
        ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": "many"}}, "max_new_tokens"),
    ],
)
def test_what_cannot_be_served_names_its_field(path: str, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        _parse(path, **fields)

    assert (caught.value.status, caught.value.param) == (400, param)


FIELDS = (
    *("model", "input", "messages", "query", "documents", "text_1", "text_2", "queries", "items", "text", "input_ids"),
    *("prompt", "sampling_params", "parameters", "max_tokens", "n", "stream"),
)


@given(st.sampled_from(sorted(EXTRAS)), requests(*FIELDS))
def test_any_bytes_are_a_request_or_an_error_for_the_client(path: str, body: bytes) -> None:
    parse = APIS[path].parse
    assert parse is not None
    try:
        outcome: ParsedBody | ApiError = parse(body)
    except ApiError as error:
        outcome = error

    assert is_sound(outcome, named=False)
