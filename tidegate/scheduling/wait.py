"""How long a request will wait: what is ahead of it, and what will overtake it, over the rate at which a pool takes.

The rate is learned while something waits, which is when the pool takes as much as it can; a queue that is empty for a
while says nothing about it. Both what was taken and seconds are forgotten evenly, so that the rate follows a pool that
grows, shrinks or falls ill within a minute.

Of all that a pool takes, the bands above a request's own take first, also what has yet to come. So a request that has
``ahead`` before it waits for the time T in which ``rate`` x T is ``ahead`` and what those bands take until then. With
their rate as steady as it was, T = ``ahead`` / (``rate`` - theirs): the wait behind a priority in a queue of its own,
as in any text on priority queues (Cobham 1954). Ageing bounds it: what comes later than a band's lead is worth in
seconds of waiting does not overtake any more.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.scheduling.reach import Asked, Reach, Reaches

MEMORY_SECONDS = 30.0
"""After how many seconds of waiting what was learned counts 1/e."""

ENOUGH_REQUESTS = 8
ENOUGH_SECONDS = 1.0
"""How many requests, and seconds of waiting, must have been seen before what was learned is believed alone."""

RECENT_SECONDS = 60.0
"""A band of which nothing was taken from the queue for so long is taken to ask for nothing any more."""

SILENT_TIMES = 3.0
"""One that was heard so many times as often as it is silent now has become slower; so has one that stopped."""

LEAST_SPARE = 0.01
"""A smaller share of a rate than this is not left to anybody: rates are not known that well."""

MOST_TENANTS = 128
"""Tenants of one band whose rates are told apart."""

_MOST_WEIGHT = 1e100
_FORGOTTEN_SECONDS = 20 * MEMORY_SECONDS


@dataclass(slots=True)
class _Taken:
    """What a band took, when it last did, and where that may go.

    Requests and tokens, also by tenant, are times the weight of their time.
    """

    tokens: float = 0.0
    requests: float = 0.0
    last: float = -math.inf
    tenants: dict[str, float] = field(default_factory=dict)
    asked: Asked = field(default_factory=Asked)

    def add(self, tenant: str, tokens: int, weight: float, now: float, reach: Reach | None) -> None:
        self.tokens += tokens * weight
        self.requests += weight
        self.last = now
        self.asked.add(reach, now, RECENT_SECONDS)
        self.tenants[tenant] = self.tenants.get(tenant, 0.0) + tokens * weight
        if len(self.tenants) > MOST_TENANTS:
            kept = sorted(self.tenants.items(), key=lambda one: -one[1])[: MOST_TENANTS // 2]
            self.tenants = dict(kept)


class Above(NamedTuple):
    """What a band takes that is above another.

    Attributes:
        band: its priority.
        tokens: tokens a second.
        requests: requests a second.
        reaches: where these may go.
    """

    band: int
    tokens: float
    requests: float
    reaches: Reaches = ()


@dataclass(slots=True)
class DrainRate:
    """Learns at what rate a pool's queue is emptied, and by whom.

    Attributes:
        tokens: tokens that were taken, forgotten evenly.
        requests: requests that were, likewise.
        seconds: seconds in which something waited, likewise.
        times: how many requests were ever seen taken.
    """

    tokens: float = 0.0
    requests: float = 0.0
    seconds: float = 0.0
    times: int = 0
    _since: float | None = None
    _weight: float = 1.0
    _bands: dict[int, _Taken] = field(default_factory=dict)

    def waits(self, now: float) -> None:
        """Note that something waits at ``now`` (seconds)."""
        self._advance(now)
        if self._since is None:
            self._since = now

    def taken(
        self, tokens: int, now: float, *, empty: bool, band: int = 0, tenant: str = "", reach: Reach | None = None
    ) -> None:
        """Note that a request of ``tokens``, of that priority and ``tenant``, was taken at ``now``.

        ``empty`` says whether nothing waits any more; ``reach`` where it may go, by default anywhere.
        """
        self._advance(now)
        if self._since is not None:
            self.tokens += tokens
            self.requests += 1
            self.times += 1
            self._bands.setdefault(band, _Taken()).add(tenant, tokens, self._weight, now, reach)
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
        self.requests *= kept
        # The integral of what is forgotten while it passes, so that a steady rate is learned exactly.
        self.seconds = self.seconds * kept + MEMORY_SECONDS * (1.0 - kept)
        self._since = now
        # What bands took is not made less for each; what they take from now on counts more.
        if passed > _FORGOTTEN_SECONDS or self._weight / kept > _MOST_WEIGHT:
            self._bands.clear()
            self._weight = 1.0
        else:
            self._weight /= kept

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

    @property
    def requests_per_second(self) -> float:
        """Requests that are taken a second; 0 when nothing is known."""
        return self.requests / self.seconds if self.seconds > 0 else 0.0

    @property
    def tokens_each(self) -> float:
        """Tokens of a request, on average; 0 when nothing is known."""
        return self.tokens / self.requests if self.requests > 0 else 0.0

    def above(self, band: float, now: float) -> list[Above]:
        """Return what the bands above ``band`` take that still ask for something at ``now`` (seconds).

        Nothing as long as too little was seen.
        """
        if not self.is_sure:
            return []
        total, found = self._weight * self.seconds, list[Above]()
        for number, taken in self._bands.items():
            silent = now - taken.last
            if number > band and silent < RECENT_SECONDS:
                rate = taken.requests / total
                # One that is silent for longer than its rate explains is no longer as fast.
                share = min(1.0, SILENT_TIMES / (silent * rate)) if silent > 0 else 1.0
                reaches = taken.asked.since(now - RECENT_SECONDS)
                found.append(Above(number, share * taken.tokens / total, share * rate, reaches))
        return found

    def others(self, band: int, tenant: str, but: Collection[str]) -> tuple[float, dict[str, float]]:
        """Return the tokens a second of a band's other tenants: of all together that are not in ``but``, and of those.

        A tenant that is not told apart counts as one of all.
        """
        taken = self._bands.get(band)
        if taken is None or not self.is_sure:
            return 0.0, {}
        total = self._weight * self.seconds
        each = {name: taken.tenants.get(name, 0.0) / total for name in but}
        own = taken.tenants.get(tenant, 0.0) / total
        return max(0.0, taken.tokens / total - own - sum(each.values())), each

    def seconds_for(
        self, tokens_ahead: float, prior: float | None = None, overtaking: Iterable[tuple[float, float]] = ()
    ) -> float | None:
        """Return for how many seconds a request with ``tokens_ahead`` before it will wait; ``None`` when unknown.

        Infinite where others take all that there is, for as long as that lasts.

        Args:
            tokens_ahead: what goes before it, and itself.
            prior: see ``rate``.
            overtaking: who will: tokens a second, and for how many seconds from now what comes still does.
        """
        rate = self.rate(prior)
        if rate is None or rate <= 0:
            return None
        return until(tokens_ahead, rate, overtaking)


def until(ahead: float, rate: float, overtaking: Iterable[tuple[float, float]] = ()) -> float:
    """Return after how many seconds ``rate`` has done ``ahead`` and what overtakes it; infinite where it never has.

    Args:
        ahead: tokens.
        rate: tokens a second, above 0.
        overtaking: tokens a second that go first, and for how many seconds from now such ones come.
    """
    left, begun = ahead, 0.0
    coming = sorted(overtaking, key=lambda one: one[1])
    for at, (_, lasts) in enumerate(coming):
        # Until the next of them ends, these go first.
        spare = rate - sum(tokens for tokens, _ in coming[at:])
        if math.isinf(lasts):
            return begun + left / spare if spare > LEAST_SPARE * rate else math.inf
        if spare * (lasts - begun) >= left and spare > 0:
            return begun + left / spare
        left -= spare * (lasts - begun)
        begun = lasts
    return begun + left / rate
