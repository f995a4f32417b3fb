"""One GPU, as the signals ask it: every question has a deadline, and no answer is unknown, not an error."""

import logging
from typing import Any

from tidegate.agent import nvml
from tidegate.agent.lane import Lane
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

    async def ask(self, function: str, *arguments: Any, of: Any = None, expected: tuple[int, ...] = ()) -> Any | None:
        """Return what NVML's ``function`` says of this GPU, or of the handle ``of``; ``None`` if that is unknown.

        A question without an answer is logged once, unless its error is ``expected``.

        Raises:
            Hung: no answer came in time.
            Lost, ResetRequired, DriverGone: the answer is about more than the question.
        """
        ask = getattr(self._library, function, None)
        if ask is None:
            self._unknown(function, "this version of nvidia-ml-py does not know it")
            return None
        try:
            return await self.lane.call(ask, self.handle if of is None else of, *arguments)
        except self._library.NVMLError as error:
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
