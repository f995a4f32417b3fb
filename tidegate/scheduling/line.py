"""The queue of one pool, and the words in which it is spoken of: who asks, a place, what became of it."""

import enum
import math
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.scheduling.dispatch import Decision, Refusal
from tidegate.scheduling.queue import Bounds, Full, Queue, Waiting
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.room import Room
from tidegate.scheduling.wait import DrainRate

BATCH_BELOW = 0
"""Requests of a lower priority than this are batch work."""

TENANT_BOUNDS = (Full.TENANT_REQUESTS, Full.TENANT_TOKENS)

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
    """

    pool: str
    why: Why
    estimate: float | None
    position: int
    retry_seconds: int


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


class Standing(NamedTuple):
    """What waits for one pool, of one class.

    Attributes:
        pool: its name.
        batch: whether these are batch work.
        requests: how many.
        tokens: their tokens.
        bytes: their bodies'.
        oldest_seconds: for how long the oldest has waited; 0 where nothing waits.
    """

    pool: str
    batch: bool
    requests: int
    tokens: int
    bytes: int
    oldest_seconds: float


class Line:
    """The queue of one pool.

    The rate at which it is emptied is learned as a whole and for each priority: what the more important will take, who
    have yet to come, is not ahead of a request, and keeps it waiting all the same.
    """

    def __init__(self, pool: str, settings: QueueSettings) -> None:
        self.pool = pool
        self.settings = settings
        self.room = Room(settings.max_running)
        self.queue = Queue(settings.bounds, settings.ageing_seconds, dict(settings.weights))
        self.drain = DrainRate()
        self.prior: float | None = None
        self.learned_at = -math.inf
        self._drains: dict[int, DrainRate] = {}

    def configure(self, settings: QueueSettings) -> None:
        """Take over ``settings``; what waits stays."""
        self.settings = settings
        self.room.max_running = settings.max_running
        self.queue.configure(settings.bounds, settings.ageing_seconds, dict(settings.weights))

    def may_wait(self, priority: int) -> float:
        """Return how many seconds a request of ``priority`` may wait."""
        return self.settings.batch_max_wait_seconds if priority < BATCH_BELOW else self.settings.max_wait_seconds

    def entered(self, waiting: Waiting, now: float) -> None:
        """Take note that ``waiting`` was taken in at ``now`` (seconds)."""
        self.room.wanted = True
        self.drain.waits(now)
        self._drains.setdefault(waiting.priority, DrainRate()).waits(now)

    def let_go(self, waiting: Waiting, now: float) -> None:
        """Take note that it was the turn of ``waiting``, which is out of the queue."""
        self.drain.taken(waiting.tokens, now, empty=not self.queue)
        band = waiting.priority
        self._drains[band].taken(waiting.tokens, now, empty=not self.queue.holds(band))
        self.room.wanted = bool(self.queue)

    def left(self, waiting: Waiting, now: float) -> None:
        """Take note that ``waiting`` is out of the queue for another reason."""
        if not self.queue.holds(waiting.priority):
            self._drains[waiting.priority].emptied(now)
        if not self.queue:
            self.drain.emptied(now)
            self.room.wanted = False

    def standing(self, waiting: Waiting) -> tuple[int, float | None]:
        """Return the place that ``waiting`` would have if it came now, and how many seconds it would wait."""
        requests, higher, tokens = self.queue.ahead(waiting.tenant, waiting.priority)
        tokens += waiting.tokens
        own = self._drains.get(waiting.priority)
        if own is None or not own.is_sure:
            return requests + 1, self.drain.seconds_for(higher + tokens, self.prior)
        before, then = self.drain.seconds_for(higher, self.prior), own.seconds_for(tokens)
        return requests + 1, None if before is None or then is None else before + then

    def is_sure(self, priority: int) -> bool:
        """Whether the rate of a priority was seen, and is not just thought to be."""
        return priority in self._drains and self._drains[priority].is_sure

    def turned_away(self, waiting: Waiting, why: Why) -> Turnaway:
        """Return what to say to the client of a request that does not wait (any longer).

        It is to come again when the queue is so short that it would go in time, and has room for it. Room there is as
        soon as anybody leaves; but that is had by whoever asks first, while what waits now has all gone by the time
        that the request's own turn would have come.
        """
        position, estimate = self.standing(waiting)
        retry = self.drain.seconds_for(waiting.tokens, self.prior) or 0.0
        if estimate is not None:
            retry = max(retry, estimate if why in _NO_ROOM else estimate - (waiting.deadline - waiting.arrived))
        return Turnaway(self.pool, why, estimate, position, min(MOST_RETRY_SECONDS, max(1, math.ceil(retry))))


def standing(line: Line, waiting: list[Waiting], now: float, *, batch: bool) -> Standing:
    """Return the sum of what is ``waiting`` in ``line`` at ``now`` (seconds)."""
    return Standing(
        line.pool,
        batch,
        len(waiting),
        sum(one.tokens for one in waiting),
        sum(one.bytes for one in waiting),
        max((now - one.arrived for one in waiting), default=0.0),
    )
