"""Chat: a conversation in, one message or more out."""

from typing import Any

import msgspec

from extproc.body import (
    Chat,
    ParsedBody,
    cache_salt,
    check_stream_options,
    choice_count,
    model_name,
    read,
    token_limit,
    truth,
)
from extproc.conversation import of_messages, of_schemas, with_schemas

METHOD = "POST"
PATHS = ("/v1/chat/completions",)


class _Fields(msgspec.Struct):
    model: Any = None
    messages: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    functions: msgspec.Raw = msgspec.Raw()
    max_completion_tokens: Any = None
    max_tokens: Any = None
    n: Any = None
    stream: Any = None
    stream_options: Any = None
    cache_salt: Any = None
    chat_template_kwargs: Any = None


def parse(body: bytes) -> ParsedBody:
    """Understand the body of a chat request.

    Raises:
        ApiError: nobody could serve it.
    """
    return read(body, _Fields, _understand)


def _understand(fields: _Fields) -> ParsedBody:
    model = model_name(fields.model)
    check_stream_options(fields.stream_options)
    conversation = of_messages(fields.messages, model)
    schemas = of_schemas(tools=fields.tools, functions=fields.functions)
    return ParsedBody(
        model=model,
        texts=(*conversation.texts, *schemas),
        overhead_tokens=conversation.tokens,
        conversation=with_schemas(conversation.shape, schemas),
        max_output_tokens=token_limit(max_completion_tokens=fields.max_completion_tokens, max_tokens=fields.max_tokens),
        stream=truth(fields.stream),
        choices=choice_count(n=fields.n),
        salt=cache_salt(fields.cache_salt),
        given=Chat(fields.messages, fields.tools, fields.chat_template_kwargs),
    )
