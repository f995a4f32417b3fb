"""Pooling: texts or a conversation in, what a model makes of them out; nothing is generated."""

from typing import Any

import msgspec

from extproc import prompts
from extproc.body import ParsedBody, model_or_none, read
from extproc.conversation import of_messages
from extproc.usage import Usage

METHOD = "POST"
PATHS = ("/pooling",)
USAGE = Usage.NONE


class _Fields(msgspec.Struct):
    model: Any = None
    input: Any = None
    messages: Any = None


def parse(body: bytes) -> ParsedBody:
    """Understand the body of a pooling request.

    Raises:
        ApiError: nobody could serve it.
    """
    return read(body, _Fields, _understand)


def _understand(fields: _Fields) -> ParsedBody:
    model = model_or_none(fields.model)
    if fields.messages is not None:
        conversation = of_messages(fields.messages, model)
        return ParsedBody(
            model=model,
            texts=tuple(conversation.texts),
            overhead_tokens=conversation.tokens,
            conversation=conversation.shape,
            max_output_tokens=0,
        )
    given = prompts.of_field("input", fields.input)
    return ParsedBody(model=model, texts=given.texts, known_tokens=given.known_tokens, max_output_tokens=0)
