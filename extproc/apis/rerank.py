"""Reranking: documents in, and how well each answers a query out; nothing is generated."""

from typing import Any

import msgspec

from extproc import pairs
from extproc.body import ParsedBody, model_or_none, read
from extproc.usage import Usage

METHOD = "POST"
PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")
USAGE = Usage.NONE


class _Fields(msgspec.Struct):
    model: Any = None
    query: Any = None
    documents: Any = None


def parse(body: bytes) -> ParsedBody:
    """Understand the body of a request to rerank.

    Raises:
        ApiError: nobody could serve it.
    """
    return read(body, _Fields, _understand)


def _understand(fields: _Fields) -> ParsedBody:
    model = model_or_none(fields.model)
    given = pairs.of_fields("query", fields.query, "documents", fields.documents)
    return ParsedBody(model=model, texts=tuple(given.texts), overhead_tokens=given.tokens, max_output_tokens=0)
