"""Generation in the engines' own form: a prompt in, its continuation out."""

from typing import Any

import msgspec

from extproc import prompts
from extproc.body import ParsedBody, choice_count, model_or_none, read, token_limit, truth
from extproc.usage import Usage

METHOD = "POST"
PATHS = ("/generate",)
USAGE = Usage.NONE

_PROMPTS = ("text", "input_ids", "prompt", "inputs")
"""What the prompt is called: by SGLang (two), vLLM and TGI."""


class _Fields(msgspec.Struct):
    model: Any = None
    text: Any = None
    input_ids: Any = None
    prompt: Any = None
    inputs: Any = None
    sampling_params: Any = None
    parameters: Any = None
    max_tokens: Any = None
    n: Any = None
    stream: Any = None


def parse(body: bytes) -> ParsedBody:
    """Understand the body of a request to generate.

    Raises:
        ApiError: nobody could serve it.
    """
    return read(body, _Fields, _understand)


def _understand(fields: _Fields) -> ParsedBody:
    model = model_or_none(fields.model)
    name = next((name for name in _PROMPTS if getattr(fields, name) is not None), _PROMPTS[0])
    given = prompts.of_field(name, getattr(fields, name))
    # SGLang's and TGI's; vLLM has them beside the prompt. (SGLang takes a list of them too, which is passed over.)
    nested = fields.sampling_params if fields.sampling_params is not None else fields.parameters
    held = nested if isinstance(nested, dict) else {}
    return ParsedBody(
        model=model,
        texts=given.texts,
        known_tokens=given.known_tokens,
        max_output_tokens=token_limit(max_new_tokens=held.get("max_new_tokens"), max_tokens=fields.max_tokens),
        stream=truth(fields.stream),
        choices=given.number * choice_count(n=fields.n if fields.n is not None else held.get("n")),
    )
