"""Whether the requests at one endpoint progress, by what is seen of it anyway."""

import math

from tidegate.engines.check import Standing
from tidegate.fleet.load import AtWork, EngineReport

MOVED_SECONDS = 10.0
"""How long a sign of progress counts: several scrapes, and several requests of any fleet that is in use."""


class Movement:
    """What was seen of one endpoint. Times are seconds on a monotonic clock."""

    __slots__ = ("_idle_at", "_moved_at", "_tokens")

    def __init__(self, now: float) -> None:
        """Begin at ``now``, without requests."""
        self._tokens: float | None = None
        self._moved_at = -math.inf
        self._idle_at = now

    def looked(self, work: AtWork, now: float) -> None:
        """Take in what is known of the work there at ``now``."""
        if not work.requests:
            self._idle_at = now
        tokens = counted(work.report)
        if tokens is not None:
            # Fewer than before is an engine that began anew, which is a sign as well.
            if self._tokens is not None and tokens != self._tokens:
                self._moved_at = now
            self._tokens = tokens

    def served(self, now: float) -> None:
        """Take in that a request was served there."""
        self._moved_at = now

    def standing(self, work: AtWork, now: float) -> Standing:
        """Return how the endpoint stands at ``now``."""
        report = work.report
        held = [value for value in (report.running, report.waiting) if value is not None]
        return Standing(
            work.requests,
            max(0.0, sum(held) - work.requests) if held else None,
            now - max(self._moved_at, self._idle_at) if work.requests else 0.0,
            now - self._moved_at < MOVED_SECONDS,
            counted(report) is not None,
            work.prefill_seconds,
            now - self._moved_at,
        )


def counted(report: EngineReport) -> float | None:
    """Return the tokens that the engine has ever worked on, as far as it says; ``None`` when it does not say."""
    told = [value for value in (report.prompt_tokens_total, report.generation_tokens_total) if value is not None]
    return sum(told) if told else None
