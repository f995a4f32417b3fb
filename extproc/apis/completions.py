"""Completions: a prompt in, its continuation out."""

from typing import Any

import msgspec

from extproc import prompts
from extproc.body import (
    ParsedBody,
    cache_salt,
    check_stream_options,
    choice_count,
    model_name,
    read,
    token_limit,
    truth,
)

METHOD = "POST"
PATHS = ("/v1/completions",)


class _Fields(msgspec.Struct):
    model: Any = None
    prompt: Any = None
    suffix: Any = None
    max_tokens: Any = None
    n: Any = None
    best_of: Any = None
    stream: Any = None
    stream_options: Any = None
    cache_salt: Any = None


def parse(body: bytes) -> ParsedBody:
    """Understand the body of a completion request.

    Raises:
        ApiError: nobody could serve it.
    """
    return read(body, _Fields, _understand)


def _understand(fields: _Fields) -> ParsedBody:
    model = model_name(fields.model)
    check_stream_options(fields.stream_options)
    given = prompts.of_field("prompt", fields.prompt)
    return ParsedBody(
        model=model,
        texts=(*given.texts, fields.suffix) if isinstance(fields.suffix, str) else given.texts,
        known_tokens=given.known_tokens,
        max_output_tokens=token_limit(max_tokens=fields.max_tokens),
        stream=truth(fields.stream),
        # Each prompt of a batch has its own choices, and best_of are generated where n are returned.
        choices=given.number * choice_count(n=fields.n, best_of=fields.best_of),
        salt=cache_salt(fields.cache_salt),
        given=given.given,
    )
