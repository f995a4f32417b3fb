"""Scoring: pairs of texts in, how alike each is out; nothing is generated."""

from typing import Any

import msgspec

from extproc import pairs, prompts
from extproc.body import MAX_TOKENS, ParsedBody, model_or_none, read
from extproc.usage import Usage

METHOD = "POST"
PATHS = ("/score", "/v1/score")
USAGE = Usage.NONE


class _Fields(msgspec.Struct):
    model: Any = None
    text_1: Any = None
    text_2: Any = None
    data_1: Any = None
    data_2: Any = None
    queries: Any = None
    documents: Any = None
    query: Any = None
    items: Any = None


_SPELLINGS = (("text_1", "text_2"), ("data_1", "data_2"), ("queries", "documents"), ("query", "items"))
"""What the two sides are called: by vLLM in the order of its releases, then by SGLang."""


def parse(body: bytes) -> ParsedBody:
    """Understand the body of a request to score.

    Raises:
        ApiError: nobody could serve it.
    """
    return read(body, _Fields, _understand)


def _understand(fields: _Fields) -> ParsedBody:
    model = model_or_none(fields.model)
    given_any = (names for names in _SPELLINGS if any(getattr(fields, name) is not None for name in names))
    one, other = next(given_any, _SPELLINGS[0])
    first, second = getattr(fields, one), getattr(fields, other)
    if prompts.are_ids(first) and isinstance(second, list):
        # SGLang takes token ids, on both sides then.
        known = len(first) * len(second) + sum(len(item) for item in second if prompts.are_ids(item))
        return ParsedBody(model=model, texts=(), known_tokens=min(known, MAX_TOKENS), max_output_tokens=0)
    given = pairs.of_fields(one, first, other, second)
    return ParsedBody(model=model, texts=tuple(given.texts), overhead_tokens=given.tokens, max_output_tokens=0)
