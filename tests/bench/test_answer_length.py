"""What the measurement of answers' lengths sends and gets."""

import json

import pytest

from bench import answer_length
from bench.http1 import Response
from extproc.answer import Answer


@pytest.mark.parametrize("tokens", [1, 20, 2000])
def test_the_engine_answers_with_as_many_tokens_as_it_says(tokens: int) -> None:
    raw = b"".join(answer_length.events(tokens))
    response = Response()
    assert response.feed(raw)
    assert response.status == 200
    answer = Answer("text/event-stream")
    body = raw.partition(b"\r\n\r\n")[2]
    while body:
        size, _, body = body.partition(b"\r\n")
        answer.feed(body[: int(size, 16)], 0.0)
        body = body[int(size, 16) + 2 :]
    assert (answer.text_events, answer.tokens.completion, answer.ended) == (tokens, tokens, True)


def test_a_request_asks_for_the_length_and_for_usage() -> None:
    body = json.loads(answer_length.request(20).partition(b"\r\n\r\n")[2])
    assert (body["max_tokens"], body["stream"], body["stream_options"]) == (20, True, {"include_usage": True})
