"""What an answer cost and how it went, whatever pieces it comes in; and what of it is passed on."""

import gzip
import json
import zlib
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.answer import Answer
from extproc.reported import Tokens, read
from tests.extproc.answers import (
    CHAT,
    CHAT_WITHOUT,
    LAST,
    ROLE,
    STREAMS,
    USAGE,
    USAGE_BYTES,
    WHOLE,
    chunk,
    named,
    stream,
    usage,
)

SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"


def passed(answer: Answer, chunks: Iterable[bytes]) -> bytes:
    """Feed the chunks, one a second, and end; return what is passed on."""
    out = [answer.feed(piece, float(second)) for second, piece in enumerate(chunks, 1)]
    return b"".join([*out, answer.end(99.0)])


def facts(answer: Answer) -> tuple[Any, ...]:
    return (
        answer.tokens,
        answer.failed,
        answer.finished,
        answer.ended,
        answer.text_bytes,
        answer.text_events,
        answer.bytes,
        answer.withheld,
        answer.unread,
    )


@pytest.mark.parametrize("name", STREAMS)
def test_every_form_of_stream_tells_the_same_wherever_it_is_cut(name: str) -> None:
    body, tokens, text = STREAMS[name]
    whole = Answer(SSE, withhold=True)
    forwarded = passed(whole, [body])
    assert (whole.tokens, whole.text_bytes, whole.unread) == (tokens, text, False)
    for place in range(len(body) + 1):
        cut, plain = Answer(SSE, withhold=True), Answer(SSE)
        assert passed(cut, [body[:place], body[place:]]) == forwarded
        assert facts(cut) == facts(whole)
        assert passed(plain, [body[:place], body[place:]]) == body
        assert (plain.tokens, plain.text_bytes, plain.withheld) == (tokens, text, 0)


@given(st.sampled_from(sorted(STREAMS)), st.lists(st.integers(0, 4_000), max_size=12), st.booleans())
def test_any_chunks_give_the_same_usage_and_the_same_bytes(name: str, places: list[int], withhold: bool) -> None:
    body = STREAMS[name][0]
    whole, cut = Answer(SSE, withhold=withhold), Answer(SSE, withhold=withhold)
    places = sorted(min(place, len(body)) for place in places)
    chunks = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
    assert passed(cut, chunks) == passed(whole, [body])
    assert facts(cut) == facts(whole)


@pytest.mark.parametrize("name", WHOLE)
def test_every_form_of_whole_answer_tells_what_it_cost(name: str) -> None:
    value, tokens, text = WHOLE[name]
    body = json.dumps(value).encode()
    for place in range(len(body) + 1):
        answer = Answer(JSON, withhold=True)
        assert passed(answer, [body[:place], body[place:]]) == body
        assert (answer.tokens, answer.text_bytes) == (tokens, text)
        assert (answer.ended, answer.failed, answer.unread, answer.withheld) == (True, False, False, 0)


def test_the_event_that_was_not_asked_for_is_withheld_and_nothing_else() -> None:
    answer = Answer(SSE, withhold=True)
    assert passed(answer, [CHAT[n : n + 1] for n in range(len(CHAT))]) == CHAT_WITHOUT
    assert (answer.tokens, answer.withheld, answer.ended) == (Tokens(7, 2, 9), 1, True)


def test_the_line_end_of_an_event_withheld_goes_with_it() -> None:
    answer = Answer(SSE, withhold=True)
    crlf = USAGE_BYTES.replace(b"\n", b"\r\n")
    assert answer.feed(crlf[:-1], 0.0) == b""
    assert answer.feed(b"\ndata: [DONE]\r\n\r\n", 0.0) == b"data: [DONE]\r\n\r\n"


@pytest.mark.parametrize(
    "event",
    [
        {**LAST, "usage": usage(7, 2)},
        chunk("a", usage=usage(7, 2)),
        {"choices": [], "prompt_filter_results": []},
        {"choices": [], "usage": None},
        {"usage": usage(7, 2)},
        {"choices": [], "usage": usage(7, 2), "error": {"message": "no"}},
    ],
)
def test_an_event_that_brings_anything_else_is_passed_on(event: dict[str, Any]) -> None:
    body = stream(ROLE, event)
    answer = Answer(SSE, withhold=True)
    assert passed(answer, [body]) == body
    assert answer.withheld == 0


def test_what_is_complete_is_passed_on_at_once() -> None:
    answer = Answer(SSE, withhold=True)
    assert answer.feed(b": ping\n", 0.0) == b": ping\n"
    first = stream(chunk("a"), done=False)
    assert answer.feed(first + b"data: {", 1.0) == first
    assert answer.feed(b"}\n\n", 2.0) == b"data: {}\n\n"


def test_the_first_token_is_the_first_text_not_the_role_or_a_comment() -> None:
    answer = Answer(SSE)
    for second, event in enumerate([b": ping\n\n", stream(ROLE, done=False), stream(chunk("a")), stream(chunk("b"))]):
        answer.feed(event, float(second))
    assert answer.first_token_at == 2.0


def test_the_first_token_of_a_whole_answer_is_its_first_byte() -> None:
    answer = Answer(JSON)
    answer.feed(b"", 1.0)
    answer.feed(b"{", 2.0)
    answer.feed(b"}", 3.0)
    assert answer.first_token_at == 2.0


@pytest.mark.parametrize(
    "body",
    [
        stream(chunk("a"), {"error": {"message": "busy", "code": 503}}, done=False),
        stream({"error": "overloaded", "error_type": "overloaded"}, done=False),
        stream({"object": "error", "message": "no"}),
        stream(chunk("a"), {"choices": [{"delta": {}, "finish_reason": "error"}]}),
        b"event: error\ndata: it broke\n\n",
        named({"type": "error", "error": {"type": "overloaded_error", "message": "no"}}),
        STREAMS["responses, failed"][0],
        stream({"text": "", "meta_info": {"finish_reason": {"type": "abort", "message": "no"}}}),
    ],
)
def test_an_error_inside_a_stream_is_seen(body: bytes) -> None:
    for place in range(len(body)):
        answer = Answer(SSE)
        passed(answer, [body[:place], body[place:]])
        assert answer.failed


@pytest.mark.parametrize("error", [None, "", {}, []])
def test_an_error_that_is_empty_is_none(error: object) -> None:
    answer = Answer(SSE)
    passed(answer, [stream({**chunk("a"), "error": error})])
    assert not answer.failed


def test_an_error_inside_a_whole_answer_is_seen() -> None:
    answer = Answer(JSON)
    passed(answer, [b'{"error":{"message":"no"}}'])
    assert answer.failed


@pytest.mark.parametrize(("name", "ended"), [("chat", True), ("chat without an end", False), ("messages", True)])
def test_the_end_is_seen_where_there_is_one(name: str, ended: bool) -> None:
    answer = Answer(SSE)
    passed(answer, [STREAMS[name][0]])
    assert (answer.ended, answer.finished) == (ended, True)


@pytest.mark.parametrize("lost", range(1, 60, 7))
def test_a_stream_that_is_cut_off_is_estimated_from_what_was_passed_on(lost: int) -> None:
    body = stream(ROLE, *[chunk("word ") for _ in range(50)], done=False)
    answer = Answer(SSE)
    passed(answer, [body[: len(body) * (60 - lost) // 60]])
    assert answer.tokens.completion is None
    assert not answer.ended
    assert 0 < answer.estimated_completion_tokens() <= 63
    assert answer.estimated_completion_tokens() >= answer.text_events


def test_an_estimate_takes_events_for_tokens_where_text_is_short() -> None:
    answer = Answer(SSE)
    passed(answer, [stream(*[chunk("a") for _ in range(40)])])
    assert answer.estimated_completion_tokens() == 40


def test_an_answer_without_text_is_estimated_as_nothing() -> None:
    answer = Answer(SSE)
    passed(answer, [stream(ROLE, LAST)])
    assert answer.estimated_completion_tokens() == 0


@pytest.mark.parametrize("name", ["gzip", "x-gzip", "GZIP", "deflate"])
def test_a_compressed_stream_is_read_and_passed_on_as_it_is(name: str) -> None:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS if name == "deflate" else 16 + zlib.MAX_WBITS)
    lines = CHAT.splitlines(keepends=True)
    chunks = [packer.compress(line) + packer.flush(zlib.Z_SYNC_FLUSH) for line in lines]
    chunks.append(packer.flush())
    for pieces in (chunks, [b"".join(chunks)], [bytes([byte]) for byte in b"".join(chunks)]):
        answer = Answer(SSE, name, withhold=True)
        assert passed(answer, pieces) == b"".join(chunks)
        assert (answer.tokens, answer.text_bytes, answer.unread) == (Tokens(7, 2, 9), 6, False)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br", "x"])
def test_what_is_compressed_in_another_way_costs_something_all_the_same(coding: str) -> None:
    answer = Answer(SSE, coding, withhold=True)
    assert passed(answer, [b"\x00" * 400]) == b"\x00" * 400
    assert answer.unread
    assert answer.estimated_completion_tokens() == 100


def test_what_is_not_the_gzip_that_it_says_is_passed_on() -> None:
    for body in (b"plain", gzip.compress(CHAT)[:-9] + b"garbage!!", b""):
        answer = Answer(SSE, "gzip")
        assert passed(answer, [body]) == body


def test_a_bomb_is_given_up() -> None:
    bomb = gzip.compress(b"data: " + b"x" * 50_000_000)
    answer = Answer(SSE, "gzip")
    assert passed(answer, [bomb[n : n + 1_000] for n in range(0, len(bomb), 1_000)]) == bomb
    assert answer.unread


def test_a_large_whole_answer_is_passed_on_unread() -> None:
    answer = Answer(JSON, max_json_bytes=1_000)
    body = json.dumps({"x": "y" * 2_000, "usage": usage(7, 2)}).encode()
    assert passed(answer, [body[:900], body[900:]]) == body
    assert (answer.tokens, answer.unread, answer._json) == (Tokens(), True, None)
    assert answer.estimated_completion_tokens() > 0


def test_a_large_event_is_passed_on_unread_and_the_others_are_read() -> None:
    answer = Answer(SSE, withhold=True, max_event_bytes=1_000)
    body = stream(chunk("x" * 2_000), chunk("a"), USAGE)
    assert passed(answer, [body]) == body.replace(USAGE_BYTES, b"")
    assert (answer.tokens, answer.unread, answer.text_bytes) == (Tokens(7, 2, 9), True, 1)


@pytest.mark.parametrize("kind", ["", "text/html", "audio/mpeg", "application/octet-stream"])
def test_what_is_neither_a_stream_nor_json_is_passed_on(kind: str) -> None:
    answer = Answer(kind, withhold=True)
    assert passed(answer, [b"abc", b"", b"def"]) == b"abcdef"
    assert (answer.bytes, answer.tokens, answer.unread) == (6, Tokens(), False)


@given(st.binary(max_size=60) | st.sampled_from([b"null", b"[]", b"[[]]", b"[1]", b"1", b'"x"', b"[" * 5_000, b"{}"]))
def test_nothing_that_an_engine_sends_makes_it_fail(data: bytes) -> None:
    read(data)
    for kind in (SSE, JSON):
        assert passed(Answer(kind, withhold=True), [b"data: " + data + b"\n\n"]) == b"data: " + data + b"\n\n"


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 1.5, -1, 10**30, "x", [], {}, [None], [{}], {"usage": 1}, {"delta": [], "text": 1}]
)


@given(st.dictionaries(st.sampled_from(["type", "object", "error", "usage", "choices", "response", "message", "delta",
    "content", "output", "timings", "token", "generated_text", "details", "text", "meta_info"]), ODD))  # fmt: skip
def test_no_type_of_any_field_makes_it_fail(value: dict[str, Any]) -> None:
    report = read(json.dumps(value).encode())
    assert report is not None
    assert report.text_bytes >= 0


@pytest.mark.parametrize("number", [True, -1, 1.5, "7", 10**12, None, [], {}])
def test_a_number_that_is_none_is_unknown(number: object) -> None:
    report = read(json.dumps({"choices": [], "usage": {"prompt_tokens": number, "completion_tokens": 3.0}}).encode())
    assert report is not None
    assert report.tokens == Tokens(None, 3)


def test_what_only_a_lenient_parser_reads_is_read() -> None:
    report = read(b'{"choices":[{"delta":{"content":"\\ud83d"},"logprobs":NaN}],"usage":{"completion_tokens":3}}')
    assert report is not None
    assert (report.tokens.completion, report.text_bytes) == (3, 1)
