"""A worker's side of the limits: the main process counts, and is asked over the channel."""

import asyncio
from collections.abc import Callable
from typing import Final

from extproc.errors import ApiError
from tidegate.runtime.workers import messages
from tidegate.scheduling.allowance import Answer, Ask

ANSWER_SECONDS: Final = 2.0
"""How long the main process may take. It answers within a millisecond; it may be reading a large log entry, or waiting
for whom it shares the limits with."""

REASON: Final = "limits_unknown"


def unanswered() -> ApiError:
    """Return the error for a request of which it cannot be found out whether it may go on."""
    return ApiError(
        503,
        "The limits of this request cannot be looked up now. Try again later.",
        reason=REASON,
        kind="server_error",
        code="service_unavailable",
        headers={"retry-after": "1"},
    )


class RemoteTill:
    """Asks the main process. It is a ``Till``."""

    def __init__(self, send: Callable[[messages.FromWorker], None], unauthenticated: Callable[[str], None]) -> None:
        """Ask with ``send``; have requests counted by ``unauthenticated`` whose sender is not known."""
        self._send = send
        self._asked: dict[str, asyncio.Future[Answer]] = {}
        self.unauthenticated = unauthenticated

    async def take(self, ask: Ask) -> Answer:
        """Take what is asked for from all limits, or from none; wait ``ANSWER_SECONDS`` at the most.

        Raises:
            ApiError: 503, the main process did not answer, or could not find out; nothing is held then.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._asked[ask.id] = answer
        # No ``asyncio.timeout``, which needs a task: an exchange has none before it waits, and this is its first wait.
        timer = loop.call_later(ANSWER_SECONDS, self._give_up, ask.id)
        self._send(messages.Asked(ask))
        try:
            return await answer
        finally:
            timer.cancel()
            del self._asked[ask.id]

    def answered(self, request_id: str, answer: Answer | None) -> None:
        """Take in the main process's answer, ``None`` where it could not find out. Nobody may wait for it any more."""
        waiting = self._asked.get(request_id)
        if waiting is None or waiting.done():
            return
        if answer is None:
            waiting.set_exception(unanswered())
        else:
            waiting.set_result(answer)

    def withdraw(self, request_id: str) -> None:
        """Give back what was taken, or is about to be."""
        self._send(messages.Withdrawn(request_id))

    def _give_up(self, request_id: str) -> None:
        self.answered(request_id, None)
        self.withdraw(request_id)
