"""How long a request will wait: the tokens ahead of it over the rate at which the pool takes tokens from its queue.

The rate is learned while something waits, which is when the pool takes as much as it can; a queue that is empty for a
while says nothing about it. Both tokens and seconds are forgotten evenly, so that the rate follows a pool that grows,
shrinks or falls ill within a minute.

Of that rate a request gets what is left by those of higher priority who come while it waits, at the rate at which they
came of late. Without that, whoever asks least urgently is told a fraction of the truth.
"""

import math
from dataclasses import dataclass, field

MEMORY_SECONDS = 30.0
"""After how many seconds of waiting what was learned counts 1/e."""

ENOUGH_SECONDS = 1.0
"""How many seconds of waiting must have been seen before what was learned is believed alone."""

LEAST_SHARE = 0.02
"""Of the rate that is left to a request, however many come before it: they may stop coming."""


@dataclass(slots=True)
class DrainRate:
    """Learns at what rate a pool's queue is emptied.

    Attributes:
        tokens: tokens that were taken, forgotten evenly.
        seconds: seconds in which something waited, likewise.
        came: tokens that came to wait, by priority, likewise.
    """

    tokens: float = 0.0
    seconds: float = 0.0
    came: dict[int, float] = field(default_factory=dict)
    _since: float | None = None

    def waits(self, now: float) -> None:
        """Note that something waits at ``now`` (seconds)."""
        self._advance(now)
        if self._since is None:
            self._since = now

    def joined(self, tokens: int, priority: int, now: float) -> None:
        """Note that a request of ``tokens`` and ``priority`` came at ``now`` and waits."""
        self.waits(now)
        self.came[priority] = self.came.get(priority, 0.0) + tokens

    def taken(self, tokens: int, now: float, *, empty: bool) -> None:
        """Note that a request of ``tokens`` was taken at ``now``, and whether nothing waits any more."""
        self._advance(now)
        if self._since is not None:
            self.tokens += tokens
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
        for priority in self.came:
            self.came[priority] *= kept
        # The integral of what is forgotten while it passes, so that a steady rate is learned exactly.
        self.seconds = self.seconds * kept + MEMORY_SECONDS * (1.0 - kept)
        self._since = now

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

    def seconds_for(self, tokens_ahead: int, prior: float | None = None, priority: float = math.inf) -> float | None:
        """Return for how many seconds a request with ``tokens_ahead`` before it will wait; ``None`` when unknown.

        Args:
            tokens_ahead: of those that wait, those that go before it.
            prior: as for ``rate``.
            priority: its priority; those above it that are to come go before it too.
        """
        rate = self.rate(prior)
        if rate is not None:
            above = sum(tokens for other, tokens in self.came.items() if other > priority)
            rate -= min(above / max(self.seconds, ENOUGH_SECONDS), (1.0 - LEAST_SHARE) * rate)
        wait = math.inf if rate is None or rate <= 0 else tokens_ahead / rate
        return wait if math.isfinite(wait) else None
