"""Messages: Anthropic's form of a conversation, one message out."""

from typing import Any

import msgspec

from extproc.blocks import of_conversation
from extproc.body import ParsedBody, model_name, read, token_limit, truth
from extproc.conversation import of_schemas, with_schemas
from extproc.errors import missing
from extproc.usage import Usage

METHOD = "POST"
PATHS = ("/v1/messages",)
USAGE = Usage.MESSAGES


class _Fields(msgspec.Struct):
    model: Any = None
    system: Any = None
    messages: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    max_tokens: Any = None
    stream: Any = None


def parse(body: bytes) -> ParsedBody:
    """Understand the body of a request for a message.

    Raises:
        ApiError: nobody could serve it.
    """
    return read(body, _Fields, _understand)


def _understand(fields: _Fields) -> ParsedBody:
    model = model_name(fields.model)
    conversation = of_conversation(fields.system, fields.messages, model)
    schemas = of_schemas(tools=fields.tools)
    limit = token_limit(max_tokens=fields.max_tokens)
    if limit is None:
        raise missing("max_tokens")
    return ParsedBody(
        model=model,
        texts=(*conversation.texts, *schemas),
        overhead_tokens=conversation.tokens,
        conversation=with_schemas(conversation.shape, schemas),
        max_output_tokens=limit,
        stream=truth(fields.stream),
    )
