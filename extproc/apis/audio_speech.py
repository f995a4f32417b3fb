"""Speech: a text in, a recording of it out."""

from typing import Any

import msgspec

from extproc.body import ParsedBody, model_or_none, read
from extproc.errors import missing, wrong_type
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
    if fields.input is None:
        raise missing("input")
    if not isinstance(fields.input, str):
        raise wrong_type("input", "a string")
    instructed = isinstance(fields.instructions, str)
    return ParsedBody(
        model=model,
        texts=(fields.input, fields.instructions) if instructed else (fields.input,),
        stream=fields.stream_format == "sse",
    )
