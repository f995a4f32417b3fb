"""How long a request will wait: the tokens ahead of it over the rate at which the pool takes tokens from its queue.

The rate is learned while something waits, which is when the pool takes as much as it can; a queue that is empty for a
while says nothing about it. Both tokens and seconds are forgotten evenly, so that the rate follows a pool that grows,
shrinks or falls ill within a minute.
"""

import math
from dataclasses import dataclass

MEMORY_SECONDS = 30.0
"""After how many seconds of waiting what was learned counts 1/e."""

ENOUGH_REQUESTS = 8
ENOUGH_SECONDS = 1.0
"""How many requests, and seconds of waiting, must have been seen before what was learned is believed alone."""


@dataclass(slots=True)
class DrainRate:
    """Learns at what rate a pool's queue is emptied.

    Attributes:
        tokens: tokens that were taken, forgotten evenly.
        seconds: seconds in which something waited, likewise.
        times: how many requests were ever seen taken.
    """

    tokens: float = 0.0
    seconds: float = 0.0
    times: int = 0
    _since: float | None = None

    def waits(self, now: float) -> None:
        """Note that something waits at ``now`` (seconds)."""
        self._advance(now)
        if self._since is None:
            self._since = now

    def taken(self, tokens: int, now: float, *, empty: bool) -> None:
        """Note that a request of ``tokens`` was taken at ``now``, and whether nothing waits any more."""
        self._advance(now)
        if self._since is not None:
            self.tokens += tokens
            self.times += 1
        if empty:
            self._since = None

    def emptied(self, now: float) -> None:
        """Note that nothing waits any more, without anything having been taken: it left, or its time was up."""
        self._advance(now)
        self._since = None

    def _advance(self, now: float) -> None:
        if self._since is None or now <= self._since:
            return
        passed = now - self._since
        kept = math.exp(-passed / MEMORY_SECONDS)
        self.tokens *= kept
        # The integral of what is forgotten while it passes, so that a steady rate is learned exactly.
        self.seconds = self.seconds * kept + MEMORY_SECONDS * (1.0 - kept)
        self._since = now

    @property
    def is_sure(self) -> bool:
        """Whether enough was seen to turn somebody away for how long it would take."""
        return self.times >= ENOUGH_REQUESTS and self.seconds >= ENOUGH_SECONDS

    def rate(self, prior: float | None = None) -> float | None:
        """Return tokens per second; ``None`` when nothing is known.

        Args:
            prior: what the rate is thought to be as long as little was seen: a pool with ``n`` tokens in flight that
                stay ``s`` seconds each takes about ``n / s``.
        """
        if self.seconds >= ENOUGH_SECONDS or prior is None or prior <= 0:
            return self.tokens / self.seconds if self.seconds > 0 and self.tokens > 0 else prior or None
        # Little was seen: it counts by how much.
        return (self.tokens + prior * (ENOUGH_SECONDS - self.seconds)) / ENOUGH_SECONDS

    def seconds_for(self, tokens_ahead: int, prior: float | None = None) -> float | None:
        """Return for how many seconds a request with ``tokens_ahead`` before it will wait; ``None`` when unknown."""
        rate = self.rate(prior)
        wait = math.inf if rate is None or rate <= 0 else tokens_ahead / rate
        return wait if math.isfinite(wait) else None
