"""What speaks for and against an endpoint, whoever says it, and how a request can end at one."""

import enum
import math
from typing import NamedTuple


class Verdict(enum.Enum):
    """What one source thinks of an endpoint."""

    UNKNOWN = "unknown"
    """It cannot tell. That speaks neither for nor against anybody."""
    SOUND = "sound"
    IMPAIRED = "impaired"
    """It serves, and should get less, or less of what is heavy."""
    FAILED = "failed"


class Evidence(NamedTuple):
    """What one source says of an endpoint, in place of what it said before.

    Attributes:
        source: who says so: ``agent``, ``breaker``, a check's name.
        verdict: what it thinks.
        reasons: short words, such as ``xid_79``; few different ones, because they are labels of metrics too.
        detail: one line for people.
        valid_seconds: for how long it counts unless it is said again; afterwards the source is ``UNKNOWN``.
    """

    source: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    detail: str = ""
    valid_seconds: float = math.inf


class Ending(enum.Enum):
    """How a request ended, as far as that says something of the endpoint."""

    SERVED = "served"
    NEUTRAL = "neutral"
    """Says nothing: the client left, or asked for what nobody would have given it."""
    BUSY = "busy"
    """The endpoint has too much to do: 429, or a full queue. Load is no failure."""
    UNCONNECTED = "unconnected"
    RESET = "reset"
    """The connection ended before the answer did."""
    TIMED_OUT = "timed_out"
    STALLED = "stalled"
    """Its stream stood still for too long."""
    SERVER_ERROR = "server_error"
    BROKEN_ANSWER = "broken_answer"
    """An error inside an answer that had begun with 200."""
    OUT_OF_MEMORY = "out_of_memory"
    ENGINE_DEAD = "engine_dead"
    """The engine says itself that it will not recover."""


FAILURES = frozenset(Ending) - {Ending.SERVED, Ending.NEUTRAL, Ending.BUSY}
"""The endings that speak against the endpoint."""
