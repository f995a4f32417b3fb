"""The queue of one pool, and the words in which it is spoken of: who asks, a place, what became of it."""

import enum
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.bands import Waiting
from tidegate.scheduling.dispatch import Decision, Refusal
from tidegate.scheduling.keeping import places_to_keep
from tidegate.scheduling.queue import Ahead, Bounds, Full, Queue
from tidegate.scheduling.reach import Reach, Reaches, together, within
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.room import ALL, Claim, Room
from tidegate.scheduling.wait import DrainRate

BATCH_BELOW = 0
"""Requests of a lower priority than this are batch work."""

TENANT_BOUNDS = (Full.TENANT_REQUESTS, Full.TENANT_TOKENS)

PREFILL_BEHIND = 0.05
"""Seconds of prefill that may be before an endpoint where more important requests come, for others: hardly any, since
those would wait for that as well."""

MOST_RETRY_SECONDS = 600
"""The longest that a client is told to stay away: nobody knows what will be then."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """One pool's queue, as an operator declares it.

    Attributes:
        bounds: how much may wait.
        max_wait_seconds: how long a request may wait.
        batch_max_wait_seconds: how long one of batch work may.
        ageing_seconds: after how long a wait a request counts as of the next higher priority.
        batch_share: what batch work may fill of an endpoint's batch and KV cache, 0 to 1.
        max_running: the most requests in the batch of an endpoint that does not say so; ``None`` to learn it.
        weights: the tenants' shares by name; 1 for those not named.
        kept_share: what may be kept free of all places for more important requests to come, at most, 0 to 1.
        ttft_seconds: what the time to the first token is meant to be; ``None`` where nobody said.
    """

    bounds: Bounds = field(default_factory=Bounds)
    max_wait_seconds: float = 30.0
    batch_max_wait_seconds: float = 300.0
    ageing_seconds: float = 10.0
    batch_share: float = 0.9
    max_running: int | None = None
    weights: tuple[tuple[str, float], ...] = ()
    ttft_seconds: float | None = None
    kept_share: float = 0.15


class Asker(NamedTuple):
    """Who asks, and for how long they will.

    Attributes:
        tenant: whose request it is; empty for nobody known.
        priority: of the request; below zero it is batch work.
        bytes: what its body takes of memory while it waits.
        until: when its client stops waiting, in seconds; infinite where it does not say.
    """

    tenant: str = ""
    priority: int = 0
    bytes: int = 0
    until: float = math.inf


NOBODY = Asker()


class Why(enum.Enum):
    """Why a request is turned away."""

    FULL = "queue_full"
    TENANT_FULL = "tenant_queue_full"
    SHED = "shed"
    """It waited, and a more important one took its place."""
    TOO_LONG = "wait_too_long"
    """It would wait for longer than it may."""
    EXPIRED = "wait_expired"
    """It has waited for as long as it may."""
    STOPPING = "stopping"
    """This process ends."""


_NO_ROOM = (Why.FULL, Why.TENANT_FULL, Why.SHED)


class Turnaway(NamedTuple):
    """A request that does not go, and what its client is told.

    Attributes:
        pool: where it wanted to.
        why: why not.
        estimate: how many seconds it would wait (still), as far as can be said; ``None`` is unknown.
        position: the place in the queue that it had, or would have; 1 is the next to go.
        retry_seconds: after how many whole seconds another try makes sense.
        deserted: no endpoint of the pool can be reached, so that there is nobody who could have room.
    """

    pool: str
    why: Why
    estimate: float | None
    position: int
    retry_seconds: int
    deserted: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a queue.

    Attributes:
        request: what waits, placed.
        waiting: the same, as the queue knows it.
        estimate: how many seconds it was expected to wait when it came; ``None`` is unknown.
        position: how many were to go before it then, and itself.
    """

    request: InferenceRequest
    waiting: Waiting
    estimate: float | None
    position: int

    @property
    def pool(self) -> str:
        """The pool that it waits for."""
        return self.request.pool


class Over(NamedTuple):
    """A wait that is over, and how."""

    place: Place
    outcome: Decision | Refusal | Turnaway


MAX_ASKERS = 10
"""Of those who wait, so many tenants with their priorities are told; of more, only the number of requests."""


class Waits(NamedTuple):
    """Requests of one tenant and priority that wait; the tenant is empty where nobody knows it."""

    tenant: str
    priority: int
    requests: int


class Standing(NamedTuple):
    """What waits for one pool, of one class.

    Attributes:
        pool: its name.
        batch: whether these are batch work.
        requests: how many.
        tokens: their tokens.
        bytes: their bodies'.
        oldest_seconds: for how long the oldest has waited; 0 where nothing waits.
        kept: places that the least important leave free in the pool now.
        askers: whose they are: those with the most, ``MAX_ASKERS`` of them at the most.
    """

    pool: str
    batch: bool
    requests: int
    tokens: int
    bytes: int
    oldest_seconds: float
    kept: int = 0
    askers: tuple[Waits, ...] = ()


class Line:
    """The queue of one pool.

    It learns at what rate it is emptied, and by whom: what the more important will take, who have yet to come, is not
    ahead of a request and keeps it waiting all the same; and it is why places are kept free for them (``keeping``).
    """

    def __init__(self, pool: str, settings: QueueSettings) -> None:
        self.pool = pool
        self.settings = settings
        self.room = Room(settings.max_running)
        self.queue = Queue(settings.bounds, settings.ageing_seconds, dict(settings.weights))
        self.drain = DrainRate()
        self.prior: float | None = None
        self.learned_at = -math.inf
        self._endpoints: Sequence[EndpointView] = ()
        self._places: dict[Reaches, float] = {}

    def configure(self, settings: QueueSettings) -> None:
        """Take over ``settings``; what waits stays."""
        self.settings = settings
        self.room.max_running = settings.max_running
        self.queue.configure(settings.bounds, settings.ageing_seconds, dict(settings.weights))

    def may_wait(self, priority: int) -> float:
        """Return how many seconds a request of ``priority`` may wait."""
        return self.settings.batch_max_wait_seconds if priority < BATCH_BELOW else self.settings.max_wait_seconds

    def entered(self, now: float) -> None:
        """Take note that a request was taken in at ``now`` (seconds)."""
        self.room.wanted = True
        self.drain.waits(now)

    def let_go(self, place: Place, now: float) -> None:
        """Take note that it was the turn of what waits at ``place``, which is out of the queue."""
        waiting, reach = place.waiting, Reach.of(place.request)
        empty = not self.queue
        self.drain.taken(waiting.tokens, now, empty=empty, band=waiting.priority, tenant=waiting.tenant, reach=reach)
        self.room.wanted = bool(self.queue)

    def left(self, now: float) -> None:
        """Take note that a request is out of the queue for another reason than its turn."""
        if not self.queue:
            self.drain.emptied(now)
            self.room.wanted = False

    def learn(self, endpoints: Sequence[EndpointView], now: float) -> None:
        """Learn how large the pool's ``endpoints`` are, at ``now`` (seconds)."""
        self.learned_at = now
        self.room.learn(endpoints, now)
        self._endpoints, self._places = endpoints, {}
        self.room.claim = self.usual(now)

    def claim(self, priority: int, now: float) -> Claim:
        """Return what a request of ``priority`` may take at ``now`` (seconds), whose turn it is."""
        # What batch work leaves to the others is its share, and among batch work nobody is in a hurry.
        rank = max(self.queue.rank(priority, now), BATCH_BELOW)
        share = self.settings.batch_share if priority < BATCH_BELOW else 1.0
        above = self.drain.above(rank, now) if self.settings.kept_share else ()
        if not above:
            return ALL if share == 1.0 else Claim(share)
        theirs = together(one.reaches for one in above)
        places = self._places_of(theirs)
        most = 0.0 if math.isinf(places) else self.settings.kept_share * places
        kept = places_to_keep(sum(one.requests for one in above), self.drain.requests_per_second, most)
        return Claim(share, kept, self.drain.tokens_each, PREFILL_BEHIND, theirs)

    def _places_of(self, reaches: Reaches) -> float:
        """Return how many requests the endpoints hold together to which ``reaches`` lead; infinite is unknown."""
        if (known := self._places.get(reaches)) is None:
            known = self.room.places(within(self._endpoints, reaches), self.drain.tokens_each)
            self._places[reaches] = known
        return known

    def usual(self, now: float) -> Claim:
        """Return what a request may take at ``now`` (seconds) of which it is only known that it is no batch work."""
        return self.claim(BATCH_BELOW, now)

    def standing(self, waiting: Waiting, now: float) -> tuple[int, float | None]:
        """Return the place that ``waiting`` would have if it came at ``now``, and how many seconds it would wait.

        ``None`` where nothing is known of that, infinite where others take all that there is.
        """
        ahead = self.queue.ahead(waiting.tenant, waiting.priority)
        overtaking = self._overtaking(waiting, ahead, now)
        return ahead.requests + 1, self.drain.seconds_for(ahead.tokens + waiting.tokens, self.prior, overtaking)

    def _overtaking(self, waiting: Waiting, ahead: Ahead, now: float) -> list[tuple[float, float]]:
        """Return who comes later than ``waiting`` and goes first: tokens a second, and for how long from ``now``."""
        priority, ageing = waiting.priority, self.settings.ageing_seconds
        # Of a higher band, whoever comes before its lead is used up by ageing; batch work never catches up.
        found = [
            (tokens, math.inf if priority < BATCH_BELOW <= band else (band - priority) * ageing)
            for band, tokens, *_ in self.drain.above(priority, now)
        ]
        # Of its own band, tenants that have had less, until they have had as much.
        rest, each = self.drain.others(priority, waiting.tenant, ahead.rivals.keys())
        found += [(rate, ahead.rivals[name] / rate) for name, rate in each.items() if rate > 0]
        if ahead.waits and rest > 0:
            found.append((rest, math.inf))
        return found

    def turned_away(self, waiting: Waiting, why: Why, now: float) -> Turnaway:
        """Return what to say at ``now`` (seconds) to the client of a request that does not wait (any longer).

        It is to come again when the queue is so short that it would go in time, and has room for it. Room there is as
        soon as anybody leaves; but that is had by whoever asks first, while what waits now has all gone by the time
        that the request's own turn would have come.
        """
        position, estimate = self.standing(waiting, now)
        retry = self.drain.seconds_for(waiting.tokens, self.prior) or 0.0
        if estimate is not None:
            retry = max(retry, estimate if why in _NO_ROOM else estimate - (waiting.deadline - waiting.arrived))
        if math.isinf(retry):
            # Nobody knows when others will leave something; it may have been that it waited for as long as it may.
            retry = waiting.deadline - waiting.arrived
        told = None if estimate is None or math.isinf(estimate) else estimate
        return Turnaway(self.pool, why, told, position, max(1, math.ceil(min(MOST_RETRY_SECONDS, retry))))


def standing(line: Line, waiting: list[Waiting], now: float, *, batch: bool) -> Standing:
    """Return the sum of what is ``waiting`` in ``line`` at ``now`` (seconds)."""
    asking = Counter((one.tenant, one.priority) for one in waiting)
    return Standing(
        line.pool,
        batch,
        len(waiting),
        sum(one.tokens for one in waiting),
        sum(one.bytes for one in waiting),
        max((now - one.arrived for one in waiting), default=0.0),
        line.room.claim.kept,
        tuple(Waits(*whose, requests) for whose, requests in asking.most_common(MAX_ASKERS)),
    )
