"""The errors that vLLM 0.32 answers with, word for word where a capture was at hand."""

import json
from collections.abc import Sequence
from typing import Any

from aiohttp import web


def compact(value: Any) -> str:
    """Return ``value`` as JSON without blanks, as vLLM writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def json_response(text: str, status: int = 200) -> web.Response:
    """Return ``text``, which is JSON, with vLLM's content type: without a charset."""
    return web.Response(status=status, body=text.encode(), content_type="application/json")


class ApiError(Exception):
    """An answer in OpenAI's error shape."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        """``status``: the HTTP status, also the body's ``code``; ``kind``: the body's ``type``."""
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.param = param

    def event(self) -> str:
        """Return the error as the last event of a stream that had begun, as vLLM sends it."""
        return f"data: {self._body()}\n\n"

    def response(self) -> web.Response:
        """Return the HTTP response."""
        return json_response(self._body(), self.status)

    def _body(self) -> str:
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return compact({"error": error})


def framework_error(error: web.HTTPException) -> web.Response:
    """Return what FastAPI answers where aiohttp raises ``error``: a path, a method or a size that it does not take."""
    response = json_response(compact({"detail": error.reason}), error.status)
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response


def bad_value(name: str, value: object, fault: str) -> ApiError:
    """Return the error for a parameter out of its range; ``fault`` says what is wrong with it."""
    return ApiError(400, "BadRequestError", f"{fault} (parameter={name}, value={value})", name)


def context_exceeded(limit: int, prompt_tokens: int, output_tokens: int) -> ApiError:
    """Return the error for a prompt that leaves no room, all in tokens, or for an answer too long beside it.

    vLLM cuts the prompt one token above what would fit and counts that, so its message does not tell the true length.
    """
    opening = f"This model's maximum context length is {limit} tokens. However, "
    if prompt_tokens > limit:
        seen = limit + 1
        text = (
            f"{opening}your prompt contains at least {seen} input tokens, which exceeds this limit even without any "
            "output tokens. Please reduce the length of the input prompt."
        )
    else:
        seen = limit - output_tokens + 1
        text = (
            f"{opening}you requested {output_tokens} output tokens and your prompt contains at least {seen} input "
            f"tokens, for a total of at least {limit + 1} tokens. Please reduce the length of the input prompt or the "
            "number of requested output tokens."
        )
    return bad_value("input_tokens", seen, text)


def max_tokens_too_large(name: str, max_tokens: int, limit: int) -> ApiError:
    """Return the error for an answer, in tokens, that alone exceeds the context of ``limit`` tokens."""
    fault = f"{name}={max_tokens} cannot be greater than max_model_len={limit}. Please request fewer output tokens."
    return bad_value(name, max_tokens, fault)


def unknown_model(model: str, served: str) -> ApiError:
    """Return the error for a model that is not served here."""
    message = f"The model `{model}` does not exist. Valid aliases: {served}."
    return ApiError(404, "NotFoundError", message, "model")


def queue_full() -> ApiError:
    """Return the error of an engine that holds as many requests as it may."""
    message = (
        "The engine is currently busy and cannot accept new requests. "
        "Please try again later or on a different instance."
    )
    return ApiError(503, "Service Unavailable", message)


def engine_failed() -> ApiError:
    """Return the error of an engine whose core has failed."""
    message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    return ApiError(500, "InternalServerError", message)


def out_of_memory() -> ApiError:
    """Return the error of an engine whose GPU has no room for what the request needs."""
    message = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB."
    return ApiError(500, "InternalServerError", message)


def invalid(faults: Sequence[str], param: str | None) -> ApiError:
    """Return the error for a body that has ``faults``, one line each; ``param`` is where the first one is."""
    heading = f"{len(faults)} validation error{'s' if len(faults) > 1 else ''}:"
    return ApiError(400, "Bad Request", "\n  ".join([heading, *faults]), param)


def fault(kind: str, path: str, message: str, value: object) -> str:
    """Return the line for one fault: pydantic's ``kind`` and ``message``, the path in the body, and the value there."""
    shown = f"<{type(value).__name__} of {len(value)} items>" if isinstance(value, dict | list) else str(value)
    return str({"type": kind, "loc": path, "msg": message, "input": shown})
