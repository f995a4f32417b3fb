"""Making images: a text in, pictures out."""

from typing import Any

import msgspec

from extproc.body import ParsedBody, choice_count, model_or_none, read, required_text, truth
from extproc.usage import Usage

METHOD = "POST"
PATHS = ("/v1/images/generations",)
USAGE = Usage.NONE

TOKENS_PER_IMAGE = 1_056
"""What OpenAI's gpt-image-1 generates for a picture of 1024 x 1024 in medium quality."""


class _Fields(msgspec.Struct):
    model: Any = None
    prompt: Any = None
    n: Any = None
    stream: Any = None


def parse(body: bytes) -> ParsedBody:
    """Understand the body of a request for images.

    Raises:
        ApiError: nobody could serve it.
    """
    return read(body, _Fields, _understand)


def _understand(fields: _Fields) -> ParsedBody:
    model = model_or_none(fields.model)
    return ParsedBody(
        model=model,
        texts=(required_text("prompt", fields.prompt),),
        max_output_tokens=TOKENS_PER_IMAGE,
        choices=choice_count(n=fields.n),
        stream=truth(fields.stream),
    )
