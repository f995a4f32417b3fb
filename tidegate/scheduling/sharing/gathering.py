"""When the store can be believed: once all replicas had the time to tell it what they know.

A store that lost everything begins a new *epoch*: each replica that sees that tells it again what it uses. A store that
was away for a while has not heard what each replica used of its share meanwhile. Until all have come back that were
there before, or for ``GATHER_SECONDS``, it would grant what is used already; so nobody asks it.
"""

import math
from typing import Final

GATHER_SECONDS: Final = 2.5
"""Every replica calls once a second; while it fails, every ``breaker.LONGEST_SECONDS``, which is less than this."""


class Gathering:
    """What one replica knows of the store's memory, and of the others.

    Attributes:
        epoch: the name of the epoch; empty before the first.
        replicas: how many replicas there are; 0 before that was said.
    """

    __slots__ = ("_away", "_until", "epoch", "replicas")

    def __init__(self) -> None:
        """Begin without having heard anything."""
        self.epoch = ""
        self.replicas = 0
        self._away = True
        self._until = math.inf

    def lost(self) -> None:
        """Take note that the store does not answer."""
        self._away = True
        self._until = math.inf

    def heard(self, epoch: str, age: float, replicas: int, here: int, now: float) -> bool:
        """Take note of what the store said; return whether it forgot all that it was told.

        Args:
            epoch: the name of the epoch.
            age: for how long it has been, in seconds.
            replicas: how many replicas it heard of in the last while.
            here: how many of them just now.
            now: seconds.
        """
        is_new, is_first = epoch != self.epoch, not self.epoch
        if is_new or self._away:
            # Who comes for the first time is awaited by nobody, and does not know for whom to wait.
            self._until = now + (max(0.0, GATHER_SECONDS - age) if is_first else GATHER_SECONDS)
        self.epoch, self._away = epoch, False
        if not is_first and here >= self.replicas:
            self._until = min(self._until, now)
        # That there are fewer is believed once it can be believed at all.
        self.replicas = replicas if self.is_whole(now) else max(replicas, self.replicas)
        return is_new

    def is_whole(self, now: float) -> bool:
        """Return whether all had the time to tell what they know."""
        return now >= self._until
