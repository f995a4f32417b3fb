"""What a run leaves behind: how every request fared, and how the fleet looked meanwhile."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Ending(enum.Enum):
    """How a request ended."""

    UNFINISHED = "unfinished"
    """It never did: nothing was left that could have ended it."""
    ANSWERED = "answered"
    REFUSED = "refused"
    """No endpoint was named."""
    TOO_LONG = "too_long"
    """The engine cannot hold it at all, and answered 400."""
    FAILED = "failed"
    """The engine died under it, or none that was named could be reached or took it in."""
    FULL = "queue_full"
    """As many waited as may; so it is with those of its tenant, below."""
    TENANT_FULL = "tenant_queue_full"
    SHED = "shed"
    """It waited, and a more important one took its place."""
    WOULD_WAIT = "wait_too_long"
    """It would have waited for longer than it may."""
    EXPIRED = "wait_expired"
    """It waited for as long as it may."""


@dataclass(slots=True)
class Outcome:
    """One request.

    Attributes:
        arrived: seconds on the virtual clock, as the next two.
        prompt_tokens: tokens of its prompt.
        output_tokens: tokens of its answer.
        endpoint: the address it was delivered to last; empty when to none.
        first_token: when the first token came; ``None`` unless it was answered.
        ended: when it was over.
        cached_tokens: tokens of its prompt that were found in the engine's cache.
        preemptions: how often it lost its blocks.
        ending: how it ended.
        tenant: whose it was.
        priority: how urgent it was.
        waited: seconds in the queue until it went or was turned away; ``None`` when it did not wait there.
        estimate: seconds that it was told to wait; ``None`` when nothing was said.
    """

    arrived: float
    prompt_tokens: int
    output_tokens: int
    endpoint: str = ""
    first_token: float | None = None
    ended: float | None = None
    cached_tokens: int = 0
    preemptions: int = 0
    ending: Ending = Ending.UNFINISHED
    tenant: str = ""
    priority: int = 0
    waited: float | None = None
    estimate: float | None = None

    @property
    def ttft(self) -> float | None:
        """Seconds from its arrival to its first token; ``None`` unless it was answered."""
        return None if self.first_token is None else self.first_token - self.arrived

    @property
    def end_to_end(self) -> float | None:
        """Seconds from its arrival to its last token; ``None`` unless it was answered."""
        return None if self.ended is None or self.first_token is None else self.ended - self.arrived

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first; ``None`` when there was none."""
        if self.ended is None or self.first_token is None or self.output_tokens < 2:
            return None
        return (self.ended - self.first_token) / (self.output_tokens - 1)


class Sample(NamedTuple):
    """The fleet at one moment.

    Attributes:
        at: seconds on the virtual clock.
        kv_usage: share of the KV cache in use, of every endpoint that is up.
        waiting: requests that wait in the engines, in all.
    """

    at: float
    kv_usage: Sequence[float]
    waiting: float


@dataclass(frozen=True, slots=True)
class Recording:
    """A run: the requests in the order of their arrival, the fleet over time, and how long it took (seconds)."""

    outcomes: Sequence[Outcome]
    samples: Sequence[Sample]
    seconds: float
