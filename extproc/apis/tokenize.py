"""Text to token ids, done by an engine: its GPU has nothing to do, so it counts as no load."""

from typing import Any

import msgspec

from extproc.body import ParsedBody, model_or_none, read
from extproc.usage import Usage

METHOD = "POST"
PATHS = ("/tokenize", "/v1/tokenize")
USAGE = Usage.NONE


class _Fields(msgspec.Struct):
    model: Any = None


def parse(body: bytes) -> ParsedBody:
    """Understand the body as far as a decision needs it: who is to do it.

    Raises:
        ApiError: nobody could serve it.
    """
    return read(body, _Fields, _understand)


def _understand(fields: _Fields) -> ParsedBody:
    return ParsedBody(model=model_or_none(fields.model), texts=(), max_output_tokens=0)
