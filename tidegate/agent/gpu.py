"""One GPU, as the signals ask it: every question has a deadline, and no answer is unknown, not an error."""

import logging
import math
import time
from typing import Any

from tidegate.agent import nvml
from tidegate.agent.lane import Hung, Lane
from tidegate.agent.readings import Identity

_log = logging.getLogger(__name__)

_FATAL = {
    nvml.GPU_IS_LOST: nvml.Lost,
    nvml.RESET_REQUIRED: nvml.ResetRequired,
    nvml.UNINITIALIZED: nvml.DriverGone,
    nvml.DRIVER_NOT_LOADED: nvml.DriverGone,
}
"""Errors that say something about more than the one question."""


class Gpu:
    """One GPU of an opened NVML."""

    def __init__(self, library: nvml.Nvml, handle: Any, identity: Identity, lane: Lane) -> None:
        """Ask ``library`` about ``handle`` on ``lane``."""
        self._library = library
        self.handle = handle
        self.identity = identity
        self.lane = lane
        self.links_seen: set[int] = set()
        """NVLinks that were up at some time."""
        self._said: set[str] = set()
        self._due = math.inf

    def begin_reading(self, seconds: float) -> None:
        """Let all questions from now on take ``seconds`` together: a GPU that is slow each time must not stall us."""
        self._due = time.monotonic() + seconds

    async def ask(self, function: str, *arguments: Any, of: Any = None, expected: tuple[int, ...] = ()) -> Any | None:
        """Return what NVML's ``function`` says of this GPU, or of the handle ``of``; ``None`` if that is unknown.

        A question without an answer is logged once, unless its error is ``expected``.

        Raises:
            Hung: no answer came in time, or the reading has taken too long.
            Lost, ResetRequired, DriverGone: the answer is about more than the question.
        """
        ask = getattr(self._library, function, None)
        if ask is None:
            self._unknown(function, "this version of nvidia-ml-py does not know it")
            return None
        if time.monotonic() > self._due:
            raise Hung(f"{self.identity.uuid}: the reading takes too long")
        try:
            return await self.lane.call(ask, self.handle if of is None else of, *arguments)
        except Hung:
            raise
        except Exception as error:  # noqa: BLE001 - bindings that fail in whatever way have no answer
            code = nvml.code_of(error)
            if code in _FATAL:
                raise _FATAL[code](function) from None
            if code not in expected:
                self._unknown(function, str(error))
            return None

    def _unknown(self, function: str, reason: str) -> None:
        if function not in self._said:
            self._said.add(function)
            fields = {"gpu": self.identity.uuid, "call": function, "reason": reason}
            _log.info("a reading is not to be had", extra={"fields": fields})
