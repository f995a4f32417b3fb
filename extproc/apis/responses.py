"""Responses: OpenAI's later form of a conversation, as items, with one response out."""

from typing import Any

import msgspec

from extproc.body import MAX_ITEMS, ParsedBody, model_name, read, token_limit, truth
from extproc.conversation import INSTRUCTING, Contribution, add_content, of_schemas, with_schemas
from extproc.errors import missing, wrong_type, wrong_value
from extproc.usage import Usage
from tidegate.tokens.prompt import Conversation

METHOD = "POST"
PATHS = ("/v1/responses",)
USAGE = Usage.RESPONSES

_CONTENT_KEYS = ("content", "output", "summary")
"""What the items hold that reaches the model: messages, results of calls, summaries of earlier reasoning."""


class _Fields(msgspec.Struct):
    model: Any = None
    input: Any = None
    instructions: Any = None
    tools: msgspec.Raw = msgspec.Raw()
    max_output_tokens: Any = None
    background: Any = None
    stream: Any = None


def parse(body: bytes) -> ParsedBody:
    """Understand the body of a request for a response.

    Raises:
        ApiError: nobody could serve it.
    """
    return read(body, _Fields, _understand)


def _understand(fields: _Fields) -> ParsedBody:
    model = model_name(fields.model)
    if truth(fields.background):
        # Its answer would be an id to ask for later, of whichever endpoint it was.
        raise wrong_value("background", "false or left out: responses are not stored")
    given = _of_input(fields.input, model)
    schemas = of_schemas(tools=fields.tools)
    texts = [*given.texts, *schemas]
    instructions = int(isinstance(fields.instructions, str))
    if instructions:
        texts.append(fields.instructions)
    items, told = (given.shape.messages, given.shape.instructions) if given.shape else (0, 0)
    shape = Conversation(items + instructions, told + instructions)
    return ParsedBody(
        model=model,
        texts=tuple(texts),
        overhead_tokens=given.tokens,
        conversation=with_schemas(shape, schemas),
        max_output_tokens=token_limit(max_output_tokens=fields.max_output_tokens),
        stream=truth(fields.stream),
    )


def _of_input(value: Any, model: str) -> Contribution:
    if value is None:
        raise missing("input")
    if isinstance(value, str):
        return Contribution([value], 0, Conversation(1))
    if not isinstance(value, list):
        raise wrong_type("input", "a string or an array of items")
    texts: list[str] = []
    tokens = told = 0
    number = len(value)
    for place, item in enumerate(value):
        if not isinstance(item, dict):
            raise wrong_type(f"input[{place}]", "an object")
        number += sum(len(held) for key in _CONTENT_KEYS if isinstance(held := item.get(key), list))
        if number > MAX_ITEMS:
            raise wrong_value("input", f"at most {MAX_ITEMS} items and parts together")
        told += item.get("role") in INSTRUCTING
        tokens += _add_item(item, f"input[{place}]", texts, model)
    return Contribution(texts, tokens, Conversation(len(value), told))


def _add_item(item: dict[str, Any], param: str, texts: list[str], model: str) -> int:
    """Add the texts of an item to ``texts``; return an estimate of its other tokens."""
    texts += [text for key in ("name", "arguments") if isinstance(text := item.get(key), str)]
    # What a tool put out may be an object, of tools that the engine runs itself.
    contents = (
        (key, item.get(key)) for key in _CONTENT_KEYS if key == "content" or not isinstance(item.get(key), dict)
    )
    return sum(add_content(content, f"{param}.{key}", texts, model) for key, content in contents)
