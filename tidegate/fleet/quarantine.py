"""Requests that kill engines: which are under suspicion, and which nobody is given for a time.

A request is known by a fingerprint, a hash of its body. When an engine dies, all that it had not begun to answer died
with it, and any of that may have been the reason. So one death is nothing; a request under which a second engine dies
is very likely the reason, and one that is served is not.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from tidegate.fleet.evidence import Ending

DEADLY: Final = frozenset({Ending.RESET, Ending.ENGINE_DEAD})
"""How a request ends at an engine that dies of it, before it answered anything."""

DEATHS: Final = 2
"""So many engines may die under a request."""

MEMORY_SECONDS: Final = 600.0
"""How long a death is remembered against those that it took along."""

_NONE: Final = frozenset[str]()

MAX_SUSPECTS: Final = 4096
MAX_HELD: Final = 1024
"""The most that are remembered; those that were so first are forgotten first."""


class Suspects:
    """The requests under which engines died. Times are seconds."""

    def __init__(self) -> None:
        """Begin with none."""
        self._deaths: OrderedDict[int, tuple[frozenset[str], float]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._deaths)

    def died(self, fingerprint: int, engines: Iterable[str], now: float) -> bool:
        """Take in that ``engines`` died under a request; return whether it is to be kept from all others.

        One engine counts once, however often it dies: it may be what is ill.
        """
        before, since = self._deaths.pop(fingerprint, (_NONE, now))
        if now - since > MEMORY_SECONDS:
            before, since = _NONE, now
        dead = before.union(engines)
        if len(dead) >= DEATHS:
            return True
        self._deaths[fingerprint] = (dead, since)
        if len(self._deaths) > MAX_SUSPECTS:
            self._deaths.popitem(last=False)
        return False

    def served(self, fingerprint: int) -> None:
        """Take in that an engine served it, and lives."""
        self._deaths.pop(fingerprint, None)


class Quarantine:
    """The requests that nobody is given. Times are seconds."""

    def __init__(self) -> None:
        """Begin with none."""
        self._until: OrderedDict[int, float] = OrderedDict()

    def hold(self, fingerprint: int, until: float) -> None:
        """Hold a request until then."""
        self._until.pop(fingerprint, None)
        self._until[fingerprint] = until
        if len(self._until) > MAX_HELD:
            self._until.popitem(last=False)

    def holds(self, fingerprint: int, now: float) -> bool:
        """Return whether it is held at ``now``."""
        until = self._until.get(fingerprint)
        if until is None:
            return False
        if now < until:
            return True
        del self._until[fingerprint]
        return False

    def held(self, now: float) -> int:
        """Return how many are held at ``now``."""
        return sum(now < until for until in self._until.values())

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """Return those that may be held, with the time until which they are."""
        return iter(self._until.items())

    def __bool__(self) -> bool:
        """Return whether there may be any."""
        return bool(self._until)
