"""How long to wait before the next attempt: longer each time, and never at the same moment as all others."""

import random

FIRST_SECONDS = 0.5
MAX_SECONDS = 30.0


class Backoff:
    """Doubles with each failure; the wait is drawn from the upper half, so that a fleet does not come back in step."""

    def __init__(self, rng: random.Random) -> None:
        """Draw from ``rng``."""
        self._rng = rng
        self._failures = 0

    def failed(self) -> float:
        """Return how many seconds to wait after one more failure."""
        bound: float = min(MAX_SECONDS, FIRST_SECONDS * 2 ** min(self._failures, 16))
        self._failures += 1
        return bound * self._rng.uniform(0.5, 1)

    def succeeded(self) -> None:
        """Begin anew with the next failure."""
        self._failures = 0
