"""Talking to Redis: one connection, one call at a time, everything that came meanwhile in the next.

A call is bounded; when one fails, all who wait are told at once that nobody can be asked, and the connection is
dropped. While there is none, or the store is not whole, nobody waits at all: ``can_be_asked`` says so.
"""

import asyncio
import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from tidegate.scheduling.sharing.breaker import Breaker
from tidegate.scheduling.sharing.gathering import Gathering
from tidegate.sharing import operations
from tidegate.sharing.batch import Batch, Ticket
from tidegate.sharing.contracts import Clerk, Link, Observer, Telling, Times
from tidegate.sharing.deadline import within
from tidegate.sharing.errors import LinkError
from tidegate.sharing.operations import Operation, Reply, ReplyError

logger = logging.getLogger("tidegate.redis")

BEAT_SECONDS: Final = 1.0
"""Pause between two calls when there is nothing to say: replicas that are heard count, and are told what is."""

QUICK_SECONDS: Final = 0.1
"""The same until all are back and have told: so they tell at nearly the same time, and go on telling what they use."""

MOST_OPERATIONS: Final = 64
"""Reservations, and ends of requests, in one call: one or two milliseconds of Redis's time (measured)."""

MOST_NEWS: Final = 100_000
"""Ends of requests that wait to be told. What is dropped beyond comes back with its lease."""

LATE_SECONDS: Final = 0.25
"""How long after its deadline a reservation may still be made: what two clocks are apart, and no more. A frozen Redis
would otherwise make, once it thaws, those of requests that are long decided."""


class _Round:
    """What is told and asked again and again."""

    __slots__ = ("ask", "due", "seconds")

    def __init__(self, seconds: float, ask: Callable[[], Iterable[Telling]]) -> None:
        self.seconds = seconds
        self.ask = ask
        self.due = 0.0


class Courier:
    """What one replica says to Redis, and hears.

    Attributes:
        reason: why it cannot be asked, in few words; empty while it can.
    """

    def __init__(
        self, connect: Callable[[], Link], times: Times, clerk: Clerk, observer: Observer, wall: Callable[[], float]
    ) -> None:
        """Reach Redis by ``connect``; until it has told the time, that is ``wall``'s, in seconds since the epoch."""
        self._connect = connect
        self._times = times
        self._clerk = clerk
        self._observer = observer
        self._wall = wall
        self._offset: float | None = None
        self._breaker = Breaker()
        self._gathering = Gathering()
        self._replica = secrets.token_hex(8)
        self._rng = secrets.SystemRandom()
        self._link: Link | None = None
        self._calls = self._answered = 0
        self._waiting: deque[Ticket] = deque()
        self._news: deque[Operation] = deque(maxlen=MOST_NEWS)
        self._again: list[Telling] = []
        self._something = asyncio.Event()
        self._rounds = [_Round(BEAT_SECONDS, clerk.beat)]
        self._said: str | None = None
        self.reason = "not connected yet"

    # -- what the gate asks

    @property
    def replicas(self) -> int:
        """How many replicas Redis last heard of; 0 before it said."""
        return self._gathering.replicas

    def now(self) -> float:
        """Return Redis's time, as it was last told and has gone on since; in seconds since the epoch of clocks."""
        if self._offset is None:
            return self._wall()
        return time.monotonic() + self._offset

    @property
    def can_be_asked(self) -> bool:
        """Whether Redis answered last time, and knows what there is to know."""
        return self._breaker.is_closed and self._link is not None and self._gathering.is_whole(self._time())

    def ask(self, operation: Operation) -> Ticket:
        """Ask for a reservation; its answer comes within the time that a call may take."""
        loop = asyncio.get_running_loop()
        ticket = Ticket(operation, loop.create_future())
        ticket.timer = loop.call_later(self._times.call, ticket.give, None)
        self._waiting.append(ticket)
        self._something.set()
        return ticket

    def say(self, operation: Operation) -> None:
        """Have an operation done when that can be, in the order in which they are given."""
        self._news.append(operation)
        self._something.set()

    def regularly(self, seconds: float, ask: Callable[[], Iterable[Telling]]) -> None:
        """Have what ``ask`` yields told and asked every so many ``seconds``, while that can be; from ``run`` on.

        After a failure it is not asked again, but when it is due anew.
        """
        self._rounds.append(_Round(seconds, ask))

    # -- the one who talks

    async def run(self) -> None:
        """Talk to Redis until cancelled."""
        try:
            while True:
                await self._something_to_do()
                await self._turn()
        finally:
            self._give_up_on_the_waiting()
            await self._leave()

    async def _something_to_do(self) -> None:
        now = self._time()
        if self._breaker.is_open:
            await asyncio.sleep(max(0.0, self._breaker.retry_at - now))
            return
        if self._something.is_set() or not self._breaker.is_closed or self._again:
            await asyncio.sleep(0)
            return
        pause = min(one.due for one in self._rounds) - now
        if not self._gathering.is_whole(now):
            pause = QUICK_SECONDS
        try:
            async with asyncio.timeout(max(0.0, pause)):
                await self._something.wait()
        except TimeoutError:
            return

    async def _turn(self) -> None:
        """Make one call."""
        self._something.clear()
        batch = self._batch()
        began = self._time()
        try:
            reply = operations.parse(await self._call(batch), len(batch))
        except (LinkError, ReplyError) as error:
            await self._failed(batch, error, began)
            return
        except BaseException:
            self._give_up(batch)
            raise
        # Half way between sending and receiving is when Redis looked at its clock, as far as can be known.
        ended = self._time()
        self._offset = reply.now - (began + ended) / 2
        if not self._breaker.is_closed:
            self._something.set()  # now that it works
        self._breaker.succeeded(ended)
        self._observer.called("ok", ended - began)
        self._heard(batch, reply)

    def _batch(self) -> Batch:
        batch = Batch()
        if not self._breaker.is_closed or not self._gathering.epoch:
            return batch  # first it is to show that it works; what is used meanwhile is given back here, not there
        now = self._time()
        if self._gathering.is_gathered:
            batch.told = self._again or list(self._clerk.news())
        for one in self._rounds:
            if now >= one.due:
                batch.beat += one.ask()
                one.due = now + one.seconds
        while self._news and len(batch.news) < MOST_OPERATIONS:
            batch.news.append(self._news.popleft())
        while self._waiting and len(batch.tickets) < MOST_OPERATIONS:
            if not (ticket := self._waiting.popleft()).answer.done():
                ticket.sent = True
                batch.tickets.append(ticket)
        if self._news or self._waiting:
            self._something.set()
        return batch

    async def _call(self, batch: Batch) -> object:
        if self._link is None:
            link = self._connect()
            try:
                await within(self._times.connect, link.open())
            except BaseException:
                await link.close()
                raise
            self._link = link
        self._calls += 1
        not_after = self.now() + self._times.call + LATE_SECONDS if batch.tickets else 0.0
        return await within(
            self._times.call,
            self._link.call(
                (
                    self._replica,
                    self._gathering.epoch,
                    secrets.token_hex(8),
                    f"{not_after:.6f}",
                    f"{self._times.lease:.3f}",
                    operations.encoded(batch.operations()),
                    str(self._calls),
                    str(self._answered),
                )
            ),
        )

    def _heard(self, batch: Batch, reply: Reply) -> None:
        if reply.state == "late":
            # Its clock was set, and by now ours is too.
            self._give_up(batch)
            return
        self._answered = self._calls
        if batch.told:
            self._again = []
        first = not self._gathering.epoch
        if self._gathering.heard(reply.epoch, reply.age, reply.replicas, reply.here, self._time()):
            if not first:
                self._observer.forgot()
            self._again = []
            self._give_up(batch, told=False)
            self._clerk.forgotten()
        else:
            for (_, done), result in zip((*batch.told, *batch.beat), reply.results, strict=False):
                if done is not None:
                    done(result)
            first_ticket = len(batch) - len(batch.tickets)
            for ticket, result in zip(batch.tickets, reply.results[first_ticket:], strict=True):
                ticket.give(result)
        if self._gathering.is_gathered and self._clerk.has_news:
            self._something.set()
        self._note("" if self.can_be_asked else "what the others know is awaited")

    async def _failed(self, batch: Batch, error: Exception, began: float) -> None:
        now = self._time()
        reason = error.reason if isinstance(error, LinkError) else "error"
        self._breaker.failed(now, self._rng.random())
        self._observer.called(reason, now - began)
        self._give_up(batch)
        self._give_up_on_the_waiting()
        self._gathering.lost(now)
        self._note(str(error))
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    def _give_up(self, batch: Batch, *, told: bool = True) -> None:
        """Tell who waits that there is no answer, and keep the rest for the next call."""
        if told and batch.told:
            self._again = batch.told
        self._news.extendleft(reversed(batch.news))
        for ticket in batch.tickets:
            ticket.give(None)

    def _give_up_on_the_waiting(self) -> None:
        while self._waiting:
            self._waiting.popleft().give(None)

    async def _leave(self) -> None:
        """Say what is left to say, and that this replica is no more; what it holds stays until it ends."""
        if self._link is None:
            return
        link, self._link = self._link, None
        batch = Batch()
        batch.news = [*itertools.islice(self._news, MOST_OPERATIONS), operations.LEAVE]
        about = (self._replica, self._gathering.epoch, secrets.token_hex(8), "0", f"{self._times.lease:.3f}")
        asked = (operations.encoded(batch.operations()), str(self._calls + 1), str(self._answered))
        try:
            await within(self._times.call, link.call((*about, *asked)))
        except LinkError:
            pass
        finally:
            await link.close()

    def _note(self, reason: str) -> None:
        """Log when it begins or ends that limits are divided."""
        self.reason = reason
        said = reason.partition(":")[0]
        if said == self._said:
            return
        if not said:
            logger.info("limits are shared through Redis (%d replicas)", self.replicas)
        else:
            logger.warning("limits are divided among replicas, each keeps its share: Redis: %s", reason)
        self._said = said

    @staticmethod
    def _time() -> float:
        return time.monotonic()
