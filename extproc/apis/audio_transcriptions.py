"""Transcription: a recording in, its text out."""

from extproc import form
from extproc.body import ParsedBody, model_or_none, truth
from extproc.usage import Usage

METHOD = "POST"
PATHS = ("/v1/audio/transcriptions",)
USAGE = Usage.NONE

BYTES_PER_TOKEN = 1_200
"""Of a recording: 96 kbit/s at ten tokens a second."""

MAX_TOKENS = 36_000
"""An hour, where a recording that was not compressed would count for ten."""


def parse_form(body: bytes, content_type: str) -> ParsedBody:
    """Understand the form of a request to transcribe.

    Raises:
        ApiError: nobody could serve it.
    """
    given = form.read(body, content_type, ("model", "prompt", "stream"))
    model = model_or_none(given.fields.get("model"))
    prompt = given.fields.get("prompt", "")
    return ParsedBody(
        model=model,
        texts=(prompt,) if prompt else (),
        overhead_tokens=min(sum(given.files) // BYTES_PER_TOKEN, MAX_TOKENS),
        stream=truth(given.fields.get("stream")),
    )
