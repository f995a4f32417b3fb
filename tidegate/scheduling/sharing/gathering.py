"""When the store can be told what was used without it, and when it can be believed.

A store that lost everything begins a new *epoch*: each replica that sees that tells it again what it uses. A store that
was away for a while has not heard what each replica used of its share meanwhile. It is told once all are back that were
there before, or after ``GATHER_SECONDS``: of a minute's limit, what is told early would be given back at the rate of
all, while those who are not back use their part of it. And it is believed, and asked, once all have told.
"""

import math
from typing import Final

GATHER_SECONDS: Final = 2.5
"""Every replica calls once a second; while it fails, every ``breaker.LONGEST_SECONDS``, which is less than this."""

TELL_SECONDS: Final = 1.2
"""By then, every replica has called again after it was clear that all are back."""


class Gathering:
    """What one replica knows of the store's memory, and of the others.

    Attributes:
        epoch: the name of the epoch; empty before the first.
        replicas: how many replicas there are; 0 before that was said.
        is_gathered: whether all are back that are awaited, so that the store is to be told.
    """

    __slots__ = ("_away_since", "_telling", "_until", "_whole_at", "epoch", "is_gathered", "replicas")

    def __init__(self) -> None:
        """Begin without having heard anything."""
        self.epoch = ""
        self.replicas = 0
        self.is_gathered = False
        self._away_since: float | None = None
        self._telling = 0.0
        self._until = math.inf
        self._whole_at = math.inf

    def lost(self, now: float) -> None:
        """Take note that the store does not answer."""
        if self._away_since is None:
            self._away_since = now
        self.is_gathered, self._whole_at = False, math.inf

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
        if is_first:
            # Who comes for the first time is awaited by nobody, and does not know for whom to wait.
            self._until, self._telling = now + max(0.0, GATHER_SECONDS - age), 0.0
        elif is_new or self._away_since is not None:
            # A moment's absence was this replica's alone, or cost no more than that moment.
            away = TELL_SECONDS if is_new or self._away_since is None else now - self._away_since
            self._until, self._telling = now + GATHER_SECONDS, min(TELL_SECONDS, away)
        if is_new or self._away_since is not None:
            self.is_gathered, self._whole_at = False, math.inf
        self.epoch, self._away_since = epoch, None
        if not self.is_gathered and (now >= self._until or (not is_first and here >= self.replicas)):
            self.is_gathered, self._whole_at = True, now + self._telling
        # That there are fewer is believed once it can be believed at all.
        self.replicas = replicas if self.is_gathered else max(replicas, self.replicas)
        return is_new

    def is_whole(self, now: float) -> bool:
        """Return whether all had the time to tell what they know."""
        return now >= self._whole_at
