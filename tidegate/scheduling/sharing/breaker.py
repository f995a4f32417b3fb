"""Whether to ask what may not answer: not after failures in a row, and then now and again.

A failure that stands alone is tried again at once. From the ``failures``-th on there is a pause before each try, twice
as long each time, up to a bound. What was good for a while begins anew; what fails again before that, does not: a store
that answers every other time would otherwise cost every other request its wait.
"""

from typing import Final

FAILURES: Final = 3
FIRST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 2.0
STEADY_SECONDS: Final = 10.0


class Breaker:
    """Counts failures, and says when the next try is.

    Attributes:
        is_closed: whether the last try was good.
        retry_at: when the next one may be, on the caller's clock; ``-inf`` for at once.
    """

    __slots__ = ("_failures", "_good_since", "is_closed", "retry_at")

    def __init__(self) -> None:
        """Begin open, and with a try at once: nothing is known yet."""
        self.is_closed = False
        self.retry_at = float("-inf")
        self._failures = 0
        self._good_since: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a pause before the next try."""
        return not self.is_closed and self._failures >= FAILURES

    def failed(self, now: float, jitter: float) -> None:
        """Take note of a failure at ``now``.

        Args:
            now: seconds.
            jitter: between 0 and 1, drawn at random, so that replicas do not come back in step.
        """
        self.is_closed, self._good_since = False, None
        self._failures = min(self._failures + 1, 64)
        beyond = self._failures - FAILURES
        if beyond < 0:
            self.retry_at = float("-inf")
            return
        pause: float = min(LONGEST_SECONDS, FIRST_SECONDS * 2**beyond)
        self.retry_at = now + pause * (0.5 + jitter / 2)

    def succeeded(self, now: float) -> None:
        """Take note of a success at ``now``, in seconds."""
        self.is_closed = True
        if self._good_since is None:
            self._good_since = now
        elif now - self._good_since >= STEADY_SECONDS:
            self._failures = 0
