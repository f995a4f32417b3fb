"""Counting the tokens of Anthropic messages: an engine tokenises them, and its GPU has nothing to do."""

from typing import Any

import msgspec

from extproc.body import ParsedBody, model_name, read
from extproc.errors import missing
from extproc.usage import Usage

METHOD = "POST"
PATHS = ("/v1/messages/count_tokens",)
USAGE = Usage.NONE


class _Fields(msgspec.Struct):
    model: Any = None
    messages: msgspec.Raw = msgspec.Raw()


def parse(body: bytes) -> ParsedBody:
    """Understand the body of a request to count tokens; its prompt counts as nothing.

    Raises:
        ApiError: nobody could serve it.
    """
    return read(body, _Fields, _understand)


def _understand(fields: _Fields) -> ParsedBody:
    model = model_name(fields.model)
    if bytes(fields.messages).strip() in {b"", b"null"}:
        raise missing("messages")
    return ParsedBody(model=model, texts=(), max_output_tokens=0)
