"""What OpenAI's API asks of an engine: request bodies, checked as vLLM checks them."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, Field, ValidationError

from tidegate.simulator import errors
from tidegate.simulator.prompts import TOKEN_BYTES, chat_prompt, plain_prompt

_COMPLETION_MAX_TOKENS = 16

Texts = Annotated[str | list[int] | list[str] | list[list[int]], Field(union_mode="left_to_right")]


class _StreamOptions(BaseModel):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class _Body(BaseModel):
    model: str | None = None


class _GenerationBody(_Body):
    """What chat and completions have in common; keys that are not named are accepted and change nothing."""

    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    n: Annotated[int, Field(le=128)] | None = 1
    max_tokens: int | None = None
    temperature: float | None = None
    ignore_eos: bool = False


class ChatBody(_GenerationBody):
    """The body of ``POST /v1/chat/completions``."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    max_completion_tokens: int | None = None


class CompletionBody(_GenerationBody):
    """The body of ``POST /v1/completions``."""

    prompt: Texts


class EmbeddingBody(_Body):
    """The body of ``POST /v1/embeddings``."""

    input: Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1, le=4096)] | None = None


class Generation(NamedTuple):
    """A checked request for text.

    Attributes:
        prompts: tokens of each prompt (see ``prompts``).
        choices: answers to each.
        max_tokens: longest answer in tokens; ``None`` for as long as the context allows.
        ignore_eos: the model must not end its answer itself.
        stream: as events rather than one JSON.
        include_usage: with an event of usage at the end.
        continuous_usage: with usage so far in every event before it, too.
    """

    prompts: Sequence[bytes]
    choices: int
    max_tokens: int | None
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool


AnyBody = TypeVar("AnyBody", bound=_Body)


def parse(model: type[AnyBody], content_type: str, body: bytes, served: str) -> AnyBody:
    """Read a request ``body`` as ``model``; ``served`` is the one model that this engine serves.

    Raises:
        ApiError: it is something else, or asks for another model.
    """
    if content_type != "application/json":
        raise errors.invalid(["Unsupported Media Type: Only 'application/json' is allowed"], None)
    if not body:
        raise errors.invalid([errors.fault("missing", "body", "Field required", None)], "body")
    try:
        parsed = model.model_validate(_decode(body))
    except ValidationError as error:
        faults = error.errors(include_url=False)
        paths = [".".join(["body", *map(str, each["loc"])]) for each in faults]
        lines = [
            errors.fault(each["type"], path, each["msg"], each["input"])
            for each, path in zip(faults, paths, strict=True)
        ]
        raise errors.invalid(lines, paths[0]) from None
    if parsed.model and parsed.model != served:
        raise errors.unknown_model(parsed.model, served)
    return parsed


def _decode(body: bytes) -> Any:
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        place = f"body.{error.pos}"
        fault = {"type": "json_invalid", "loc": place, "msg": "JSON decode error", "input": "<dict of 0 items>"}
        raise errors.invalid([str(fault | {"ctx": {"error": error.msg}})], place) from None
    except (ValueError, RecursionError):
        raise errors.ApiError(400, "Bad Request", "There was an error parsing the body") from None


def chat(body: ChatBody, context_tokens: int) -> Generation:
    """Check a chat against the engine's context of ``context_tokens``.

    Raises:
        ApiError: a value is out of its range, or the prompt is too long.
    """
    newer = body.max_completion_tokens is not None
    name = "max_completion_tokens" if newer else "max_tokens"
    max_tokens = body.max_completion_tokens if newer else body.max_tokens
    return _checked(body, [chat_prompt(body.messages, body.tools or ())], name, max_tokens, context_tokens)


def completion(body: CompletionBody, context_tokens: int) -> Generation:
    """Check a completion against the engine's context of ``context_tokens``.

    Raises:
        ApiError: a value is out of its range, or a prompt is empty or too long.
    """
    max_tokens = _COMPLETION_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    return _checked(body, _prompts(body.prompt), "max_tokens", max_tokens, context_tokens)


def embedding(body: EmbeddingBody, context_tokens: int) -> list[bytes]:
    """Return the tokens of each input, checked against the engine's context of ``context_tokens``.

    Raises:
        ApiError: an input is empty or too long.
    """
    prompts = _prompts(body.input)
    for prompt in prompts:
        if len(prompt) // TOKEN_BYTES > context_tokens:
            raise errors.context_exceeded(context_tokens, len(prompt) // TOKEN_BYTES, 0)
    return prompts


def _prompts(given: str | list[int] | list[str] | list[list[int]]) -> list[bytes]:
    single = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
    prompts = [plain_prompt(each) for each in ([given] if single else given)]  # type: ignore[arg-type]
    if not prompts or not all(prompts):
        raise errors.ApiError(400, "BadRequestError", "The decoder prompt cannot be empty")
    return prompts


def _checked(
    body: _GenerationBody, prompts: list[bytes], name: str, max_tokens: int | None, context_tokens: int
) -> Generation:
    choices = 1 if body.n is None else body.n
    if choices < 1:
        raise errors.bad_value("n", choices, f"n must be at least 1, got {choices}.")
    if body.temperature is not None and body.temperature < 0:
        fault = f"temperature must be non-negative, got {body.temperature}."
        raise errors.bad_value("temperature", body.temperature, fault)
    if body.stream_options is not None and not body.stream:
        raise errors.invalid(["Stream options can only be defined when `stream=True`."], "stream_options")
    if max_tokens is not None and max_tokens < 1:
        raise errors.bad_value(name, max_tokens, f"{name} must be at least 1, got {max_tokens}.")
    if max_tokens is not None and max_tokens > context_tokens:
        raise errors.max_tokens_too_large(name, max_tokens, context_tokens)
    for prompt in prompts:
        if len(prompt) // TOKEN_BYTES + (max_tokens or 1) > context_tokens:
            raise errors.context_exceeded(context_tokens, len(prompt) // TOKEN_BYTES, max_tokens or 1)
    options = body.stream_options or _StreamOptions()
    include_usage = bool(options.include_usage)
    # vLLM takes the second for nothing without the first.
    continuous_usage = include_usage and bool(options.continuous_usage_stats)
    return Generation(prompts, choices, max_tokens, body.ignore_eos, bool(body.stream), include_usage, continuous_usage)
