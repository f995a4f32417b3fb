"""When an endpoint that fails its requests gets no more of them, for how long, and how it comes back.

A breaker is fed with how every request ended there, and with nothing else. It opens on failures in a row, or on a share
of the recent ones; for a time that doubles from one opening to the next it stays open; then it is half open, and real
requests try the endpoint, one at a time, until some in a row were served. What was sent there before it opened says
nothing afterwards: it failed for the same reason, or was served in spite of it.

Processes that hold replicas of the fleet see the same endings, so their breakers agree. That is why the jitter is no
random number: it is a hash of the address and of the number of the opening.
"""

import enum
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tidegate.fleet.evidence import FAILURES, Ending, Evidence, Verdict

SOURCE: Final = "breaker"
"""Under which name it speaks as evidence."""

WEIGHTS: Final[Mapping[Ending, float]] = MappingProxyType(
    {
        Ending.TIMED_OUT: 2.0,
        Ending.STALLED: 2.0,
        Ending.OUT_OF_MEMORY: 3.0,
        Ending.ENGINE_DEAD: math.inf,
    }
)
"""As how many failures in a row an ending counts; the others as one. A frozen engine shows itself by few requests, each
of which waited long; memory that is gone rarely comes back by itself; and a dead engine says so."""

STORM_ENDINGS: Final = 20
STORM_SECONDS: Final = 5.0
"""So many refusals for load in a row, over so many seconds, while nothing of ours runs there and nothing was served:
that is no load. A full engine serves what it is full of."""

JITTER: Final = 0.25
"""The share of an opening's time by which it may be longer."""

CALM_SECONDS: Final = 60.0
"""An endpoint that was well for so long, and for as long as it was left alone the last time, begins anew."""


SOUND_SECONDS: Final = 10.0
"""How long it counts as a good word that requests were served and closed it."""


class Circuit(enum.IntEnum):
    """Whether requests may go there."""

    CLOSED = 0
    HALF_OPEN = 1
    """The next one may, and only that."""
    TRYING = 2
    """The one that may is there."""
    OPEN = 3


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """By what a breaker goes.

    Attributes:
        consecutive: failures in a row that open it (see ``WEIGHTS``).
        share: share of the recent requests, 0 to 1, whose failing opens it.
        volume: fewest recent requests of which a share is taken.
        window_seconds: how long a request is recent, at least.
        open_seconds: how long it stays open the first time.
        max_open_seconds: how long it stays open at most, without the jitter.
        successes: requests in a row that have to be served before it closes.
    """

    consecutive: float = 5.0
    share: float = 0.5
    volume: int = 20
    window_seconds: float = 30.0
    open_seconds: float = 5.0
    max_open_seconds: float = 300.0
    successes: int = 2


@dataclass(slots=True)
class Breaker:
    """The breaker of one endpoint, as plain data. Times are seconds on the fleet's clock.

    Attributes:
        run: weight of the failures in a row.
        since: when the present window of recent requests began; the one before it counts too.
        failed, ended: requests of this window.
        failed_before, ended_before: those of the window before it.
        busy, busy_since: refusals for load in a row, and when the first of them came.
        openings: how often it opened of late.
        opened_at: since when it is not closed; ``None`` while it is.
        tried_from: what was sent before says nothing any more: when it opened last.
        until: when it is half open.
        closed_at: when it closed last.
        wins: requests served in a row since it opened.
        trials: the reservations of the requests that try the endpoint: one, unless several processes decided at once,
            or everybody's breaker is open.
        reason: why it opened, as in ``Evidence.reasons``.
    """

    run: float = 0.0
    since: float = -math.inf
    failed: int = 0
    ended: int = 0
    failed_before: int = 0
    ended_before: int = 0
    busy: int = 0
    busy_since: float = 0.0
    openings: int = 0
    opened_at: float | None = None
    tried_from: float = -math.inf
    until: float = 0.0
    closed_at: float = -math.inf
    wins: int = 0
    trials: frozenset[str] = frozenset()
    reason: str = ""

    def circuit(self, now: float) -> Circuit:
        """Return whether requests may go there at ``now``."""
        if self.opened_at is None:
            return Circuit.CLOSED
        if now < self.until:
            return Circuit.OPEN
        return Circuit.TRYING if self.trials else Circuit.HALF_OPEN

    def idle(self, now: float, rules: BreakerRules) -> bool:
        """Return whether nothing is left to be remembered at ``now``."""
        if self.opened_at is not None or self.run or self.busy:
            return False
        calm = max(CALM_SECONDS, self._open_seconds(rules), 2 * rules.window_seconds)
        return now - max(self.closed_at, self.since) >= calm or not (self.openings or self.failed or self.failed_before)

    def word(self, now: float) -> Evidence:
        """Return what it says of the endpoint at ``now``."""
        match self.circuit(now):
            case Circuit.CLOSED:
                return Evidence(SOURCE, Verdict.SOUND, valid_seconds=SOUND_SECONDS)
            case Circuit.OPEN:
                left = self.until - now
                said = f"opened the {_ordinal(self.openings)} time, for {left:.0f} s more"
                return Evidence(SOURCE, Verdict.FAILED, (self.reason,), said, left)
            case _:
                said = f"half open, {self.wins} served since"
                return Evidence(SOURCE, Verdict.IMPAIRED, ("half_open",), said)

    # -- what happens

    def sent(self, reservation_id: str, sent_at: float) -> None:
        """Take in that a request was sent there at ``sent_at`` (seconds). While it is half open that is a trial."""
        if self.opened_at is not None and sent_at >= self.until:
            self.trials |= {reservation_id}

    def lost(self, reservation_id: str) -> None:
        """Take in that nothing is known of how a request ended."""
        if reservation_id in self.trials:
            self.trials -= {reservation_id}

    def heard(
        self,
        reservation_id: str,
        ending: Ending,
        sent_at: float,
        now: float,
        address: str,
        rules: BreakerRules,
        *,
        alone: bool,
    ) -> bool:
        """Take in how a request ended at ``now``; return whether it opened or closed by that.

        Args:
            reservation_id: its reservation.
            ending: how it ended there.
            sent_at: when it was sent.
            now: seconds.
            address: the endpoint's, for the jitter.
            rules: by what to go.
            alone: no other request of ours is there now.
        """
        self.lost(reservation_id)
        if ending is Ending.NEUTRAL or sent_at < self.tried_from:
            return False
        if self.opened_at is not None:
            return self._tried(ending, now, address, rules)
        if ending is Ending.BUSY:
            return self._refused(now, address, rules, alone=alone)
        self._roll(now, rules)
        self.busy = 0
        self.ended += 1
        if ending not in FAILURES:
            self.run = 0.0
            return False
        self.failed += 1
        self.run += WEIGHTS.get(ending, 1.0)
        failed, ended = self.failed + self.failed_before, self.ended + self.ended_before
        often = ended >= rules.volume and failed >= rules.share * ended
        if self.run < rules.consecutive and not often:
            return False
        self._open(ending.value, now, address, rules)
        return True

    def _refused(self, now: float, address: str, rules: BreakerRules, *, alone: bool) -> bool:
        if not alone:
            return False
        if not self.busy:
            self.busy_since = now
        self.busy += 1
        if self.busy < STORM_ENDINGS or now - self.busy_since < STORM_SECONDS:
            return False
        self._open("refuses_all", now, address, rules)
        return True

    def _tried(self, ending: Ending, now: float, address: str, rules: BreakerRules) -> bool:
        """Take in the ending of a request that was sent there since it opened."""
        if ending is Ending.BUSY:
            return False
        if ending in FAILURES:
            self.wins = 0
            if now < self.until:
                return False
            self._open(ending.value, now, address, rules)
            return True
        self.wins += 1
        if self.wins < rules.successes:
            return False
        self.opened_at, self.closed_at, self.wins, self.reason, self.trials = None, now, 0, "", frozenset()
        return True

    def _open(self, reason: str, now: float, address: str, rules: BreakerRules) -> None:
        if self.opened_at is None and now - self.closed_at >= max(CALM_SECONDS, self._open_seconds(rules)):
            self.openings = 0
        self.openings += 1
        seconds = self._open_seconds(rules) * (1.0 + JITTER * _spread(address, self.openings))
        self.opened_at = self.tried_from = now
        self.until, self.reason = now + seconds, reason
        self.run, self.busy, self.wins, self.trials = 0.0, 0, 0, frozenset()
        self.failed = self.ended = self.failed_before = self.ended_before = 0

    def _open_seconds(self, rules: BreakerRules) -> float:
        """Return how long the present opening lasts, or the last one did, without the jitter."""
        doublings = min(max(0, self.openings - 1), 60)
        return min(rules.max_open_seconds, rules.open_seconds * 2.0**doublings)

    def _roll(self, now: float, rules: BreakerRules) -> None:
        """Begin another window where the present one is over."""
        past = now - self.since
        if past < rules.window_seconds:
            return
        both = past >= 2 * rules.window_seconds
        self.failed_before, self.ended_before = (0, 0) if both else (self.failed, self.ended)
        self.since, self.failed, self.ended = now, 0, 0


def _spread(address: str, opening: int) -> float:
    """Return a number in [0, 1) that differs from endpoint to endpoint and from opening to opening."""
    return zlib.crc32(f"{address} {opening}".encode()) / 2**32


def _ordinal(number: int) -> str:
    teen = 10 < number % 100 < 14
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
