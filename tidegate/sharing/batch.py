"""What one call to Redis asks."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidegate.sharing.contracts import Telling
from tidegate.sharing.operations import Operation


class Ticket:
    """One reservation that is asked for.

    Attributes:
        operation: what is asked.
        answer: the result; ``None`` when there will be none.
        sent: whether it was sent, so that it may have been done without an answer.
    """

    __slots__ = ("answer", "operation", "sent", "timer")

    def __init__(self, operation: Operation, answer: asyncio.Future[str | None]) -> None:
        self.operation = operation
        self.answer = answer
        self.sent = False
        self.timer: asyncio.TimerHandle | None = None

    def give(self, result: str | None) -> None:
        """Answer, unless that was done."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.answer.done():
            self.answer.set_result(result)


@dataclass(slots=True)
class Batch:
    """What one call asks, in this order.

    Attributes:
        told: what is told, and told again after a failure.
        beat: what is asked now and then.
        news: what became of requests.
        tickets: the reservations.
    """

    told: list[Telling] = field(default_factory=list)
    beat: list[Telling] = field(default_factory=list)
    news: list[Operation] = field(default_factory=list)
    tickets: list[Ticket] = field(default_factory=list)

    def __len__(self) -> int:
        """Return how many operations that is."""
        return len(self.told) + len(self.beat) + len(self.news) + len(self.tickets)

    def operations(self) -> Iterator[Operation]:
        """Yield all of it."""
        yield from (operation for operation, _ in self.told)
        yield from (operation for operation, _ in self.beat)
        yield from self.news
        yield from (ticket.operation for ticket in self.tickets)
