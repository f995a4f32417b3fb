"""Why a request is refused, as the client is told: in the shape of OpenAI's errors, or of Anthropic's on its API."""

import enum
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

import msgspec

from tidegate.scheduling.dispatch import Refusal, RefusalReason

INVALID_REQUEST = "invalid_request_error"
SERVICE_UNAVAILABLE = "service_unavailable"

MAX_ECHO_CHARACTERS = 100
"""How much of a model's name an error repeats."""

RETRY_AFTER_SECONDS = 1
"""When a client may try again: the fleet's state is a second old at most."""


ANTHROPIC_PATH = "/v1/messages"
"""Where Anthropic's API begins."""

ANTHROPIC_VERSION = "anthropic-version"
"""The header by which its clients tell themselves from OpenAI's, on the paths that both APIs have."""

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class Shape(enum.Enum):
    """The form of an error's JSON."""

    OPENAI = enum.auto()
    ANTHROPIC = enum.auto()


def shape_of(headers: Mapping[str, str]) -> Shape:
    """Return the form that the client of a request with these headers expects."""
    path = headers.get(":path", "").partition("?")[0]
    its_own = path == ANTHROPIC_PATH or path.startswith(f"{ANTHROPIC_PATH}/")
    shared = path.startswith("/v1/models") and ANTHROPIC_VERSION in headers
    return Shape.ANTHROPIC if its_own or shared else Shape.OPENAI


class ApiError(Exception):
    """A request that is not served.

    Attributes:
        status: the HTTP status.
        message: for a person; names the field, never its content.
        reason: one of few fixed words, for metrics and for Envoy's response code details.
        kind: the error's ``type``.
        param: the field at fault, such as ``messages[2].content``.
        code: what the error is, for programs.
        headers: further response headers.
        extra: further fields of the error.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        reason: str = "invalid_request",
        kind: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        extra: Mapping[str, float | None] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = headers
        self.extra = extra

    def kept(self) -> Self:
        """Return it without where it came from.

        Whoever keeps an error that passed through one of its own methods is in its traceback, and would be kept by it,
        with the body of the request, until the garbage collector comes.
        """
        return self.with_traceback(None)

    def body(self, shape: Shape = Shape.OPENAI) -> bytes:
        """Return the JSON body of the response."""
        if shape is Shape.ANTHROPIC:
            kind = _ANTHROPIC_TYPES.get(self.status, "api_error" if self.status >= 500 else INVALID_REQUEST)
            return msgspec.json.encode(
                {"type": "error", "error": {"type": kind, "message": self.message, **self.extra}}
            )
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code, **self.extra}
        return msgspec.json.encode({"error": error})


def missing(param: str) -> ApiError:
    """Return the error for a field that a request cannot do without."""
    return ApiError(400, f"'{param}' is missing.", param=param, code="missing_required_parameter")


def wrong_type(param: str, expected: str) -> ApiError:
    """Return the error for a field of another type than ``expected``, such as "a string"."""
    return ApiError(400, f"'{param}' must be {expected}.", param=param, code="invalid_type")


def wrong_value(param: str, expected: str) -> ApiError:
    """Return the error for a field with a value out of bounds; ``expected`` says what it must be."""
    return ApiError(400, f"'{param}' must be {expected}.", param=param, code="invalid_value")


def no_such_model(model: str) -> ApiError:
    """Return the error for a model that no pool serves."""
    return ApiError(
        404,
        f"The model {_quoted(model)} does not exist.",
        reason=RefusalReason.UNKNOWN_MODEL.value,
        param="model",
        code="model_not_found",
    )


def _no_model() -> ApiError:
    return ApiError(
        400,
        "'model' is missing. It may be left out only where a single pool is served.",
        reason=RefusalReason.UNKNOWN_MODEL.value,
        param="model",
        code="missing_required_parameter",
    )


def of_refusal(refusal: Refusal, model: str) -> ApiError:
    """Return what the client is told when the scheduler refuses a request for ``model``."""
    match refusal.reason:
        case RefusalReason.UNKNOWN_MODEL:
            return no_such_model(model) if model else _no_model()
        case RefusalReason.QUARANTINED:
            return ApiError(
                422,
                "Engines stopped working when they were given this request. It is not served for the time being.",
                reason=refusal.reason.value,
                code="request_quarantined",
            )
        case RefusalReason.NO_ENDPOINTS | RefusalReason.NO_ROOM:
            return ApiError(
                503,
                "No endpoint serves this model at the moment. Try again shortly.",
                reason=refusal.reason.value,
                kind=SERVICE_UNAVAILABLE,
                code=refusal.reason.value,
                headers={"retry-after": str(RETRY_AFTER_SECONDS)},
            )


def _quoted(text: str) -> str:
    """Return ``text`` in quotes, with everything but ASCII escaped, cut to a bearable length."""
    cut = text if len(text) <= MAX_ECHO_CHARACTERS else f"{text[:MAX_ECHO_CHARACTERS]}..."
    return json.dumps(cut)
