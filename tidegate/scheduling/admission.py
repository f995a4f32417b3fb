"""Who goes now, who waits, and who is turned away: the queues before the pools.

A request whose pool has room goes at once. One that finds none waits, and goes in its turn (``queue``) as room comes
about: when a request ends, an engine reports, an endpoint appears or comes back. Requests of a priority below zero are
batch work, which takes what the others leave: it waits behind all of them, fills only a share of an endpoint, and stays
where it is while first tokens are about to come too late (``saturation``).

What a client is told is computed from what is ahead of its request and from the rate at which the queue is emptied
(``wait``). A request that would wait for longer than it may is turned away when it comes, and not when its time is up.
"""

import math
from collections.abc import Mapping

from tidegate.fleet.capacity import capacity
from tidegate.fleet.health import NOT_THERE
from tidegate.fleet.state import Fleet
from tidegate.scheduling.bands import Waiting
from tidegate.scheduling.dispatch import Decision, Dispatcher, Refusal, RefusalReason
from tidegate.scheduling.line import (
    BATCH_BELOW,
    NOBODY,
    TENANT_BOUNDS,
    Asker,
    Line,
    Over,
    Place,
    QueueSettings,
    Standing,
    Turnaway,
    Why,
    standing,
)
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.room import Room
from tidegate.scheduling.saturation import Objective, Saturations

LEARN_SECONDS = 0.25
"""How often, at the most, the whole pool is looked at for how large its endpoints are."""


class Admission:
    """The queues of all pools that have one. Time is the caller's; it never goes back."""

    def __init__(self, fleet: Fleet, dispatcher: Dispatcher) -> None:
        """Wait for room in ``fleet``, and have ``dispatcher`` decide on those whose turn it is."""
        self._fleet = fleet
        self._dispatcher = dispatcher
        self._lines: dict[str, Line] = {}
        self._places: dict[str, Place] = {}
        self._over: list[Over] = []
        self._left_over: list[Place] = []
        # What waits here does not count: it is what is to be decided on.
        self._saturations = Saturations(fleet)

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._places)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._places

    def configure(self, queues: Mapping[str, QueueSettings], now: float) -> Mapping[str, Room]:
        """Take over the queues by pool, and return their rooms, for the dispatcher; what waits goes on waiting.

        Where a queue is gone, what waited there goes at the next ``poll``, as far as anybody serves it.
        """
        for pool in self._lines.keys() - queues.keys():
            gone = self._lines.pop(pool)
            self._left_over += [self._places.pop(waiting.id) for waiting in gone.queue]
        for pool, settings in queues.items():
            if (known := self._lines.get(pool)) is None:
                self._lines[pool] = Line(pool, settings)
            else:
                known.configure(settings)
                known.learned_at = now - LEARN_SECONDS
        self._saturations.configure({pool: Objective(settings.ttft_seconds) for pool, settings in queues.items()})
        return {pool: line.room for pool, line in self._lines.items()}

    def ask(
        self, request: InferenceRequest, now: float, asker: Asker = NOBODY
    ) -> Decision | Refusal | Turnaway | Place:
        """Have ``request`` go, or wait: a ``Place`` is over when ``poll`` says so, or the request leaves.

        Raises:
            ValueError: a request of the same id is in flight, or waits.
        """
        if asker.priority >= BATCH_BELOW:
            outcome = self._dispatcher.decide(request, now)
            if isinstance(outcome, Refusal) and outcome.request is not None:
                return self.wait(outcome.request, now, asker)
            return outcome
        placed = self._dispatcher.place(request)
        if isinstance(placed, Refusal):
            return placed
        if placed.pool not in self._lines:
            return self._dispatcher.decide(request, now)
        return self.wait(placed, now, asker)

    def wait(self, request: InferenceRequest, now: float, asker: Asker) -> Decision | Refusal | Turnaway | Place:
        """Have a ``request`` wait that found no room, or go at once if it is its turn all the same; as ``ask``.

        It is the one of the refusal that said so.
        """
        line = self._lines[request.pool]
        if now - line.learned_at >= LEARN_SECONDS or (line.prior is None and not line.drain.is_sure):
            self._learn(line, now, request)
        self._expire(line, now)
        waiting = Waiting(
            id=request.id,
            tenant=asker.tenant,
            priority=asker.priority,
            tokens=max(1, request.prompt.tokens + (request.output_tokens or 0)),
            bytes=asker.bytes,
            arrived=now,
            deadline=min(now + line.may_wait(asker.priority), asker.until),
        )
        alone = not line.queue
        if alone and (outcome := self._decided(line, request, asker.priority, now)) is not None:
            return outcome
        position, estimate = line.standing(waiting, now)
        # Only what was seen is reason enough to turn somebody away who might be served in time.
        if estimate is not None and estimate > waiting.deadline - now and line.drain.is_sure:
            return line.turned_away(waiting, Why.TOO_LONG, now)
        offer = line.queue.offer(waiting)
        for shed in offer.shed:
            line.left(now)
            self._over.append(Over(self._places.pop(shed.id), line.turned_away(shed, Why.SHED, now)))
        if offer.refused is not None:
            return line.turned_away(waiting, Why.TENANT_FULL if offer.refused in TENANT_BOUNDS else Why.FULL, now)
        place = self._places[waiting.id] = Place(request, waiting, estimate, position)
        line.entered(now)
        if not alone and line.queue.next(now) is waiting:
            self._dispatch(line, now)
            if waiting.id not in self._places:
                at = next(at for at, over in enumerate(self._over) if over.place is place)
                return self._over.pop(at).outcome
        return place

    def poll(self, now: float) -> list[Over]:
        """Let go whose turn it is at ``now`` (seconds) and turn away whose time is up; return the waits that are over.

        To be called when something happened that can make room, and at ``next_deadline``.
        """
        for line in self._lines.values():
            if now - line.learned_at >= LEARN_SECONDS:
                self._learn(line, now, None)
            if line.queue:
                self._expire(line, now)
                self._dispatch(line, now)
        left_over, self._left_over = self._left_over, []
        for place in left_over:
            self._over.append(Over(place, self._dispatcher.decide(place.request, now)))
        over, self._over = self._over, []
        return over

    def reconsider(self) -> None:
        """Take note that endpoints came, went, or are reached again: the next ``poll`` looks at all of them."""
        for line in self._lines.values():
            line.learned_at = -math.inf

    def leave(self, request_id: str, now: float) -> Place | None:
        """Take out a request whose client left; return its place, ``None`` if it does not wait."""
        place = self._places.pop(request_id, None)
        if place is not None:
            line = self._lines[place.pool]
            line.queue.leave(request_id)
            line.left(now)
        return place

    def turn_all_away(self, now: float) -> None:
        """Turn away all that waits, because this process ends; the next ``poll`` returns them."""
        for line in self._lines.values():
            for waiting in tuple(line.queue):
                line.queue.leave(waiting.id)
                line.left(now)
                self._over.append(Over(self._places.pop(waiting.id), line.turned_away(waiting, Why.STOPPING, now)))

    def next_deadline(self) -> float:
        """Return when the time of the next request is up, in seconds; infinite while nothing waits."""
        return min((line.queue.first_deadline for line in self._lines.values()), default=math.inf)

    def standings(self, now: float) -> list[Standing]:
        """Return what waits at ``now`` (seconds), by pool and class; also where nothing does."""
        return [
            standing(line, [one for one in line.queue if (one.priority < BATCH_BELOW) is batch], now, batch=batch)
            for line in self._lines.values()
            for batch in (False, True)
        ]

    def rate(self, pool: str) -> float | None:
        """Return at what rate the queue of ``pool`` is emptied, in tokens a second; ``None`` is unknown.

        Raises:
            KeyError: that pool has no queue.
        """
        line = self._lines[pool]
        return line.drain.rate(line.prior)

    def _dispatch(self, line: Line, now: float) -> None:
        """Let go those for whom there is room, in their order: where the first has to wait, all do."""
        queue = line.queue
        while (first := queue.next(now)) is not None:
            place = self._places[first.id]
            if (outcome := self._decided(line, place.request, first.priority, now)) is None:
                return
            queue.take(now)
            line.let_go(place, now)
            del self._places[first.id]
            self._over.append(Over(place, outcome))

    def _decided(self, line: Line, request: InferenceRequest, priority: int, now: float) -> Decision | Refusal | None:
        """Decide on a request whose turn it is; ``None`` if there is no room for it."""
        if priority < BATCH_BELOW and self._is_pressed(line, now):
            return None
        room = line.room
        usual, room.claim = room.claim, line.claim(priority, now)
        room.everybody = lambda: self._fleet.view(line.pool, now).endpoints
        try:
            outcome = self._dispatcher.decide(request, now, in_turn=True)
        finally:
            room.claim, room.everybody = usual, None
        return None if isinstance(outcome, Refusal) and outcome.reason is RefusalReason.NO_ROOM else outcome

    def _is_pressed(self, line: Line, now: float) -> bool:
        """Return whether interactive requests need all that there is, if they are to begin in time."""
        if line.settings.ttft_seconds is None or line.pool not in self._fleet.pools:
            return False
        return self._saturations.of(line.pool, now).is_pressed

    def _expire(self, line: Line, now: float) -> None:
        for waiting in line.queue.expire(now):
            line.left(now)
            outcome = line.turned_away(waiting, Why.EXPIRED, now)._replace(deserted=self._is_deserted(line.pool, now))
            self._over.append(Over(self._places.pop(waiting.id), outcome))

    def _is_deserted(self, pool: str, now: float) -> bool:
        """Return whether none of the endpoints of ``pool`` can be reached."""
        endpoints = self._fleet.view(pool, now).endpoints if pool in self._fleet.pools else ()
        return all(one.ejected or one.reachability in NOT_THERE for one in endpoints)

    def _learn(self, line: Line, now: float, request: InferenceRequest | None) -> None:
        """Learn how large the endpoints are, and how fast they should be with requests such as ``request``."""
        endpoints = self._fleet.view(line.pool, now).endpoints if line.pool in self._fleet.pools else ()
        line.learn(endpoints, now)
        if request is not None and not line.drain.is_sure:
            prompt, output = max(1, request.prompt.tokens), request.output_tokens or 0
            served = 0.0
            for endpoint in endpoints:
                batch = min(endpoint.pace.max_batch, line.room.batch(endpoint) or math.inf)
                served += capacity(endpoint.pace._replace(max_batch=batch), prompt, output)
            line.prior = served * (prompt + output) or None
