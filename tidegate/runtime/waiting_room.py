"""Where requests wait for room: the queues of ``admission``, with the clock and with those who wait."""

import asyncio
import math
from collections.abc import Callable, Mapping

from tidegate.runtime.figures import Figures
from tidegate.scheduling.admission import Admission
from tidegate.scheduling.dispatch import Decision, Refusal
from tidegate.scheduling.line import BATCH_BELOW, Asker, Place, QueueSettings, Standing, Turnaway
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.room import Room

TICK_SECONDS = 0.25
"""How often it is looked for room that came about without an event: an engine reported, or one that is back may have
more."""

IDLE_TICKS = 4
"""Every how many of them the pools are looked at although nothing waits, to learn how large their endpoints are."""

ADMITTED, CANCELLED, REFUSED = "admitted", "cancelled", "refused"
"""How a wait ends, besides the reasons to be turned away."""

Noted = Callable[[Decision, InferenceRequest], None]
"""Takes note of a decision, at once."""


class WaitingRoom:
    """All that waits in this process."""

    def __init__(
        self,
        admission: Admission,
        noted: Noted,
        abandon: Callable[[str], None],
        figures: Figures,
        clock: Callable[[], float],
    ) -> None:
        """Have ``admission`` say whose turn it is.

        Its decisions are ``noted``; ``abandon`` releases the reservation of one whose client is gone. ``figures``
        counts, and ``clock`` is that of the event loop.
        """
        self._admission = admission
        self._noted = noted
        self._abandon = abandon
        self._figures = figures
        self._clock = clock
        self._waits: dict[str, Wait] = {}
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timed_for = math.inf

    def configure(self, queues: Mapping[str, QueueSettings]) -> Mapping[str, Room]:
        """Take over the queues by pool; return their rooms, for the dispatcher."""
        rooms = self._admission.configure(queues, self._clock())
        self.changed()
        return rooms

    def ask(self, request: InferenceRequest, asker: Asker) -> "Decision | Refusal | Turnaway | Wait":
        """Decide on ``request``, now if it is its turn."""
        now = self._clock()
        outcome = self._admission.ask(request, now, asker)
        self._figures.received(outcome.pool)
        return self._answered(outcome, request, asker, now)

    def wait(self, request: InferenceRequest, asker: Asker) -> "Decision | Refusal | Turnaway | Wait":
        """Do the same with a request that found no room, and was counted by whoever looked."""
        now = self._clock()
        return self._answered(self._admission.wait(request, now, asker), request, asker, now)

    def _answered(
        self, outcome: Decision | Refusal | Turnaway | Place, request: InferenceRequest, asker: Asker, now: float
    ) -> "Decision | Refusal | Turnaway | Wait":
        if isinstance(outcome, Decision):
            self._noted(outcome, request)
            return outcome
        if isinstance(outcome, Refusal):
            return outcome
        # Whoever was shed for this one, or was late, is told soon.
        self.changed()
        if isinstance(outcome, Turnaway):
            self._figures.turned_away(outcome.pool, class_of(asker.priority), outcome.why.value)
            return outcome
        wait = self._waits[request.id] = Wait(self, outcome, now)
        self._figures.queued(outcome.pool, class_of(asker.priority))
        self._set_timer()
        return wait

    def changed(self, *, endpoints: bool = False) -> None:
        """Take note that there may be room, soon; ``endpoints`` says that some came, went, or are reached again."""
        if endpoints:
            self._admission.reconsider()
        if self._soon is None and (self._waits or len(self._admission)):
            self._soon = asyncio.get_running_loop().call_soon(self._look)

    async def run(self) -> None:
        """Look for room again and again, for ever."""
        while True:
            for _ in range(IDLE_TICKS):
                await asyncio.sleep(TICK_SECONDS)
                if self._waits:
                    self._look()
            self._look()

    def close(self) -> None:
        """Turn away all that waits: this process ends."""
        self._admission.turn_all_away(self._clock())
        self._look()

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._admission)

    def standings(self) -> list[Standing]:
        """Return what waits, by pool and class."""
        return self._admission.standings(self._clock())

    def rate(self, pool: str) -> float | None:
        """Return at what rate the queue of ``pool`` is emptied, in tokens a second.

        Raises:
            KeyError: that pool has no queue.
        """
        return self._admission.rate(pool)

    def _look(self) -> None:
        """Let go whose turn it is, and turn away whose time is up."""
        self._soon = None
        now = self._clock()
        for place, outcome in self._admission.poll(now):
            if isinstance(outcome, Decision):
                self._noted(outcome, place.request)
            wait = self._waits.pop(place.request.id, None)
            if wait is not None:
                wait.end(outcome)
                self._ended(place, outcome, now)
            elif isinstance(outcome, Decision):
                self._abandon(outcome.reservation.id)
        self._set_timer()

    def _ended(self, place: Place, outcome: Decision | Refusal | Turnaway, now: float) -> None:
        waited, kind = now - place.waiting.arrived, class_of(place.waiting.priority)
        if isinstance(outcome, Decision):
            self._figures.unqueued(place.pool, kind, ADMITTED, waited)
            if place.estimate is not None:
                self._figures.wait_foretold(place.pool, place.estimate - waited)
        else:
            self._figures.unqueued(
                place.pool, kind, REFUSED if isinstance(outcome, Refusal) else outcome.why.value, waited
            )

    def left(self, wait: "Wait") -> None:
        """Take out a request whose client left while it waited."""
        now, place = self._clock(), wait.place
        self._waits.pop(place.request.id, None)
        self._admission.leave(place.request.id, now)
        self._figures.unqueued(place.pool, class_of(place.waiting.priority), CANCELLED, now - place.waiting.arrived)
        # The next one may need less room.
        self.changed()

    def abandon(self, reservation_id: str) -> None:
        """Release the reservation of a decision that its client did not wait for."""
        self._abandon(reservation_id)

    def _set_timer(self) -> None:
        """Be called when the time of the next request is up."""
        first = self._admission.next_deadline()
        if first == self._timed_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timed_for = first
        self._timer = None
        if first < math.inf:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, first - self._clock()), self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer, self._timed_for = None, math.inf
        self._look()


class Wait:
    """A request that waits for room (see ``extproc.desk.Wait``)."""

    __slots__ = ("_outcome", "_room", "_taken", "_waiter", "place", "seconds")

    def __init__(self, room: WaitingRoom, place: Place, now: float) -> None:
        self.place = place
        self.seconds = max(0.0, place.waiting.deadline - now)
        self._room = room
        self._outcome: Decision | Refusal | Turnaway | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._taken = False

    @property
    def estimate(self) -> float | None:
        """For how many seconds it was expected to wait."""
        return self.place.estimate

    def end(self, outcome: Decision | Refusal | Turnaway) -> None:
        """Take note of what becomes of it."""
        self._outcome = outcome
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def over(self) -> Decision | Refusal | Turnaway:
        """Return what becomes of it."""
        while self._outcome is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._taken = True
        return self._outcome

    def leave(self) -> None:
        """Take it out, or release what was decided and never taken."""
        if self._taken:
            return
        self._taken = True
        if self._outcome is None:
            self._room.left(self)
        elif isinstance(self._outcome, Decision):
            self._room.abandon(self._outcome.reservation.id)


def class_of(priority: int) -> str:
    """Return the name of the class that a priority is of."""
    return "batch" if priority < BATCH_BELOW else "interactive"
