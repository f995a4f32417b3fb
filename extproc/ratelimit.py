"""What a client is told of its limits: OpenAI's ``x-ratelimit-*`` headers, and the error when one is in the way."""

import math
from collections.abc import Mapping

from extproc.errors import ApiError
from tidegate.scheduling.allowance import Standing, whole_seconds
from tidegate.scheduling.budget import Exceeded, Left, Unit, Window

REASON = "limit_exceeded"
HEADERS = tuple(
    f"x-ratelimit-{what}-{unit}" for unit in ("requests", "tokens") for what in ("limit", "remaining", "reset")
)
"""The headers; the metadata of a decision bears the same names, for Envoy to make headers of."""

IN_FLIGHT_SECONDS = 1
"""When to try again that which waits for something to end: nobody knows when, and asking costs little."""


def told(standing: Standing) -> dict[str, str]:
    """Return the headers that say how a caller stands; only those of limits that there are."""
    headers: dict[str, str] = {}
    for unit, left in (("requests", standing.requests), ("tokens", standing.tokens)):
        if left is not None:
            headers[f"x-ratelimit-limit-{unit}"] = str(left.limit.amount)
            headers[f"x-ratelimit-remaining-{unit}"] = str(left.amount)
            headers[f"x-ratelimit-reset-{unit}"] = _reset(left)
    return headers


def _reset(left: Left) -> str:
    """Return the time to the reset as OpenAI writes it, such as ``6m0s`` or ``120ms``."""
    milliseconds = math.ceil(left.reset_seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(math.ceil(milliseconds / 1000), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def exceeded(limit: Exceeded, headers: Mapping[str, str]) -> ApiError:
    """Return the error for a request that ``limit`` is in the way of; ``headers`` say how its caller stands."""
    whose = _whose(limit.scope)
    what = limit.limit.unit.value.replace("_", " ")
    per = {Window.MINUTE: "per minute", Window.DAY: "per day", Window.IN_FLIGHT: "in flight"}[limit.limit.window]
    said = f"{whose} reached its limit of {what} {per}: {limit.limit.amount}. This request asks for {limit.needed}."
    if math.isinf(limit.wait_seconds):
        message = f"{said} That is more than can be had at once at any time ({limit.limit.capacity})."
        again = {"x-should-retry": "false"}
    elif limit.limit.window is Window.IN_FLIGHT and limit.wait_seconds == 0:
        message = f"{said} Try again when a running one is over."
        again = {"retry-after": str(IN_FLIGHT_SECONDS)}
    else:
        wait = whole_seconds(limit.wait_seconds)
        message = f"{said} Try again in {wait} s."
        again = {"retry-after": str(wait)}
    return ApiError(
        429,
        message,
        reason=REASON,
        kind="requests" if limit.limit.unit is Unit.REQUESTS else "tokens",
        param=limit.limit.name,
        code="rate_limit_exceeded",
        headers={**headers, **again},
    )


def _whose(scope: str) -> str:
    """Return the words for a scope, such as ``tenant:acme/model:llama-*``."""
    outer, _, model = scope.partition("/model:")
    kind, _, name = outer.partition(":")
    words = f"The {'API key' if kind == 'key' else kind} '{name}'"
    return f"{words} for the model '{model}'" if model else words
