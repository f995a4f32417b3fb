"""Waiting for room: what a request that finds none says of itself, and what its client is told of the wait."""

import math
from collections.abc import Mapping
from typing import Final

from extproc.desk import NO_OBJECTIVES
from extproc.errors import SERVICE_UNAVAILABLE, ApiError, wrong_value
from extproc.passage import Passage
from tidegate.scheduling.line import BATCH_BELOW, Asker, Turnaway, Why

HEADER: Final = "x-request-priority"
"""By which a client takes a lower priority than its tier gives it; below 0 it is batch work."""

OBJECTIVE: Final = "x-tidegate-objective"
"""In which Envoy tells by what name a request asks for its priority (see ``xds.edge_headers``)."""

WAITED: Final = "x-tidegate-queue-seconds"
ESTIMATED: Final = "x-tidegate-queue-estimate-seconds"
"""The headers of an answer that was waited for: for how long, and for how long it was expected to be."""


LOWEST, HIGHEST = -100, 100

_SAID: Final[Mapping[Why, tuple[int, str]]] = {
    Why.FULL: (429, "Too many requests wait for this model already."),
    Why.TENANT_FULL: (429, "Too many of your requests wait for this model already."),
    Why.SHED: (429, "A more important request took this one's place in the queue."),
    Why.TOO_LONG: (429, "This request would wait for longer than it may."),
    Why.EXPIRED: (503, "This request has waited for as long as it may, and no endpoint had room for it."),
    Why.STOPPING: (503, "This process ends, and another one takes requests."),
}

_DESERTED: Final = "This request has waited for as long as it may, and no endpoint is there."


def is_batch(
    headers: Mapping[str, str], passage: Passage | None, objectives: Mapping[str, int] = NO_OBJECTIVES
) -> bool:
    """Return whether a request may be batch work, by its ``headers``, by its objective or by who sent it."""
    if HEADER in headers or (passage is not None and passage.caller.priority < BATCH_BELOW):
        return True
    return bool(objectives) and objectives.get(headers.get(OBJECTIVE, ""), BATCH_BELOW) < BATCH_BELOW


def asker(
    headers: Mapping[str, str],
    passage: Passage | None,
    body_bytes: int,
    until: float | None,
    objectives: Mapping[str, int] = NO_OBJECTIVES,
) -> Asker:
    """Return who asks.

    Args:
        headers: the request's headers.
        passage: who asks; ``None`` where nobody wants to know.
        body_bytes: how large the body is.
        until: when the client stops waiting, by the event loop's clock; ``None`` where it does not say.
        objectives: the priorities that may be asked for by name. A tenant's requests never have more than its tier's.

    Raises:
        ApiError: 400, the priority is none.
    """
    tenant, highest = ("", 0) if passage is None else (passage.caller.tenant, passage.caller.priority)
    if objectives and (named := objectives.get(headers.get(OBJECTIVE, ""))) is not None:
        highest = named if passage is None else min(highest, named)
    priority = min(highest, _priority(headers.get(HEADER), highest))
    return Asker(tenant, priority, body_bytes, math.inf if until is None else until)


def _priority(text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    try:
        # As written by people and programs: int() alone takes underscores and any digits of Unicode.
        priority = int(text) if text.isascii() and "_" not in text else HIGHEST + 1
    except ValueError:
        priority = HIGHEST + 1
    if not LOWEST <= priority <= HIGHEST:
        raise wrong_value(HEADER, f"a whole number from {LOWEST} to {HIGHEST}, given once")
    return priority


def turned_away(outcome: Turnaway) -> ApiError:
    """Return what the client of a request is told that does not go."""
    status, said = _SAID[outcome.why]
    if outcome.why is Why.EXPIRED and outcome.deserted:
        said = _DESERTED
    estimate = None if outcome.estimate is None else round(outcome.estimate, 1)
    return ApiError(
        status,
        f"{said} Try again in {outcome.retry_seconds} s.",
        reason=outcome.why.value,
        kind=SERVICE_UNAVAILABLE if status == 503 else "requests",
        code=outcome.why.value,
        headers={"retry-after": str(outcome.retry_seconds)},
        extra={"estimated_wait_seconds": estimate, "queue_position": outcome.position},
    )


def told(waited: float, estimate: float | None) -> dict[str, str]:
    """Return the headers of an answer that was waited for, ``estimate`` being what had been expected; in seconds."""
    headers = {WAITED: f"{waited:.3f}"}
    if estimate is not None:
        headers[ESTIMATED] = f"{estimate:.3f}"
    return headers
