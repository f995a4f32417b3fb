"""Xids, which the driver reports once: who misses one never sees it again."""

import collections
import ctypes
import time
from typing import Any, Final

from tidegate.agent import nvml
from tidegate.agent.gpu import Gpu
from tidegate.agent.lane import Lane
from tidegate.agent.readings import Xid

EVENT_XID: Final = 8
"""nvmlEventTypeXidCriticalError"""

MAX_WAITING = 256
"""Events kept until they are taken; the oldest go first."""

WAIT_SECONDS: Final = 0.5


class Events:
    """The Xids of all GPUs of an opened NVML."""

    def __init__(self, library: nvml.Nvml, lane: Lane) -> None:
        """Wait for events of ``library`` on ``lane``."""
        self._library = library
        self._lane = lane
        self._set: Any = None
        self._uuids: dict[object, str] = {}
        # Filled in the lane's thread, so that what a late call brings is not lost either.
        self._arrived: collections.deque[tuple[object, int, float]] = collections.deque(maxlen=MAX_WAITING)

    @property
    def registered(self) -> int:
        """How many GPUs report their Xids."""
        return len(self._uuids)

    async def register(self, gpu: Gpu) -> None:
        """Have the Xids of ``gpu`` reported from now on, if it can.

        Raises:
            Hung: a call missed its deadline.
            Lost, ResetRequired, DriverGone: the GPU or the driver is gone.
        """
        supported = await gpu.ask("nvmlDeviceGetSupportedEventTypes")
        if supported is None or not supported & EVENT_XID:
            return
        if self._set is None:
            self._set = await self._lane.call(self._library.nvmlEventSetCreate)
        # It returns nothing, as what is unknown does: whether it worked shows in that an event comes.
        await gpu.ask("nvmlDeviceRegisterEvents", EVENT_XID, self._set)
        self._uuids[_address(gpu.handle)] = gpu.identity.uuid

    async def wait(self) -> None:
        """Wait for an event, for ``WAIT_SECONDS`` at most.

        Raises:
            Hung: the call missed its deadline.
            Exception: the library's, such as that a GPU is lost.
        """
        try:
            await self._lane.call(self._take, grace=WAIT_SECONDS)
        except Exception as error:
            if nvml.code_of(error) != nvml.TIMEOUT:
                raise

    def _take(self) -> None:
        data = self._library.nvmlEventSetWait_v2(self._set, int(WAIT_SECONDS * 1000))
        if data.eventType == EVENT_XID:
            self._arrived.append((_address(data.device), int(data.eventData), time.monotonic()))

    def arrived(self) -> list[tuple[str, Xid]]:
        """Return the Xids since the last time, each with the UUID of its GPU."""
        xids = []
        while self._arrived:
            address, number, at = self._arrived.popleft()
            uuid = self._uuids.get(address)
            if uuid is not None:
                xids.append((uuid, Xid(number, at)))
        return xids


def _address(handle: Any) -> object:
    """Return what two handles of one GPU have in common: the pointer, which ctypes wraps anew each time."""
    if isinstance(handle, ctypes._Pointer):  # noqa: SLF001 - the base of all pointers has no other name
        return ctypes.cast(handle, ctypes.c_void_p).value
    return handle
