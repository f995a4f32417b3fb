"""The main process's side of what workers ask of the limits: it counts for all of them, so that no limit is shared out.

What a worker took and had not reserved an endpoint for dies with it; from there on its reservation accounts for it.
"""

import asyncio
import functools
from typing import Final, Protocol

from extproc import h2_begun
from extproc.errors import ApiError
from tidegate.runtime.gatekeeper import Till
from tidegate.runtime.workers import messages
from tidegate.scheduling.allowance import Ask


class Asker(Protocol):
    """The worker that asks."""

    def send(self, message: messages.Message) -> None:
        """Tell it something."""
        ...


class Counter:
    """Answers what workers ask, and remembers what each of them holds."""

    def __init__(self, till: Till) -> None:
        """Take from ``till``."""
        self._till: Final = till
        self._held: dict[Asker, set[str]] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}

    def received(self, asker: Asker, message: messages.Asked | messages.Withdrawn) -> None:
        """Answer what is asked, at once where nothing has to be waited for; give back what is withdrawn."""
        if isinstance(message, messages.Asked):
            self._held.setdefault(asker, set()).add(message.ask.id)
            h2_begun.begin(self._answer(asker, message.ask), functools.partial(self._go_on, message.ask.id))
        else:
            self.reserved(asker, message.id)
            self._give_back(message.id)

    def reserved(self, asker: Asker, request_id: str) -> None:
        """Account no longer for what a request took: its reservation does."""
        self._held.get(asker, set()).discard(request_id)

    def left(self, asker: Asker) -> None:
        """Give back what a worker took for requests that die with it."""
        for request_id in self._held.pop(asker, ()):
            self._give_back(request_id)

    async def _answer(self, asker: Asker, ask: Ask) -> None:
        try:
            answer = await self._till.take(ask)
        except ApiError:
            answer = None
        if answer is None or answer.exceeded is not None:
            self.reserved(asker, ask.id)  # it holds nothing
        asker.send(messages.Answered(ask.id, answer))

    def _go_on(self, request_id: str, begun: h2_begun.Begun) -> None:
        task = asyncio.get_running_loop().create_task(begun)
        self._waiting[request_id] = task
        task.add_done_callback(lambda _: self._waiting.pop(request_id, None))

    def _give_back(self, request_id: str) -> None:
        if (task := self._waiting.get(request_id)) is None:
            self._till.withdraw(request_id)
            return
        # Not before it has ended: until then it may take.
        task.cancel()
        task.add_done_callback(lambda _: self._till.withdraw(request_id))
