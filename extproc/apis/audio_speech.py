"""Speech: a text in, a recording of it out."""

from typing import Any

import msgspec

from extproc.body import ParsedBody, model_or_none, read, required_text
from extproc.usage import Usage

METHOD = "POST"
PATHS = ("/v1/audio/speech",)
USAGE = Usage.NONE


class _Fields(msgspec.Struct):
    model: Any = None
    input: Any = None
    instructions: Any = None
    stream_format: Any = None


def parse(body: bytes) -> ParsedBody:
    """Understand the body of a request to speak.

    Raises:
        ApiError: nobody could serve it.
    """
    return read(body, _Fields, _understand)


def _understand(fields: _Fields) -> ParsedBody:
    model = model_or_none(fields.model)
    text = required_text("input", fields.input)
    instructed = isinstance(fields.instructions, str)
    return ParsedBody(
        model=model,
        texts=(text, fields.instructions) if instructed else (text,),
        stream=fields.stream_format == "sse",
    )
