"""Embeddings: texts in, a vector for each out."""

from typing import Any

import msgspec

from extproc import prompts
from extproc.body import ParsedBody, model_name, read

METHOD = "POST"
PATHS = ("/v1/embeddings",)


class _Fields(msgspec.Struct):
    model: Any = None
    input: Any = None


def parse(body: bytes) -> ParsedBody:
    """Understand the body of an embedding request.

    Raises:
        ApiError: nobody could serve it.
    """
    return read(body, _Fields, _understand)


def _understand(fields: _Fields) -> ParsedBody:
    model = model_name(fields.model)
    given = prompts.of_field("input", fields.input)
    return ParsedBody(model=model, texts=given.texts, known_tokens=given.known_tokens, max_output_tokens=0)
