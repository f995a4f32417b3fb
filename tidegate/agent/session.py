"""NVML, opened: the driver, its GPUs and their Xids. Whatever is wrong with them is a finding."""

import enum
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from tidegate.agent import nvml
from tidegate.agent.gpu import Gpu
from tidegate.agent.lane import Hung, Lane
from tidegate.agent.readings import Answer, Identity, Reading, Xid
from tidegate.agent.signals import SIGNALS, identity
from tidegate.agent.signals.xid import Events

MAX_GPUS = 64
"""More than any host has; a number beyond it is not believed."""

INIT_SECONDS = 10.0
"""Opening NVML wakes the GPUs, which takes seconds where the driver does not stay loaded (persistence mode off)."""

_log = logging.getLogger(__name__)


class DriverState(enum.Enum):
    """Whether NVML can be used."""

    USABLE = "usable"
    NO_BINDINGS = "no_bindings"
    """nvidia-ml-py is not installed."""
    NO_LIBRARY = "no_library"
    """There is no libnvidia-ml.so.1: no driver is installed, or a container does not see it."""
    NOT_LOADED = "not_loaded"
    """The library is there, the kernel module is not."""
    VERSION_MISMATCH = "version_mismatch"
    """Library and kernel module are of different versions: the driver was replaced without a restart."""
    HUNG = "hung"
    ERROR = "error"


class Driver(NamedTuple):
    """Whether NVML can be used, and the driver's version where it is known."""

    state: DriverState
    version: str | None = None


_STATES = {
    nvml.LIBRARY_NOT_FOUND: DriverState.NO_LIBRARY,
    nvml.DRIVER_NOT_LOADED: DriverState.NOT_LOADED,
    nvml.UNINITIALIZED: DriverState.NOT_LOADED,
    nvml.VERSION_MISMATCH: DriverState.VERSION_MISMATCH,
}


class Unusable(Exception):  # noqa: N818
    """NVML cannot be used; ``state`` says why."""

    def __init__(self, state: DriverState, reason: str) -> None:
        """Say why, in a word and in a sentence."""
        super().__init__(reason)
        self.state = state


Lanes = Callable[[str], Lane]
"""Makes a lane of a name, or returns the one that there is: threads that hang stay counted."""


class Session:
    """NVML from its opening to its closing."""

    def __init__(self, library: nvml.Nvml, driver: Driver, gpus: tuple[Gpu, ...], events: Events, lane: Lane) -> None:
        """Take over what ``opened`` found."""
        self._library = library
        self._lane = lane
        self._events = events
        self.driver = driver
        self.gpus = gpus

    @property
    def hears_xids(self) -> bool:
        """Whether any GPU reports its Xids."""
        return self._events.registered > 0

    async def wait_for_xids(self) -> None:
        """Wait for an Xid, half a second at most.

        Raises:
            Hung: the call missed its deadline.
            DriverGone: nothing can be waited for, such as while a GPU is lost.
        """
        try:
            await self._events.wait()
        except Hung:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the bindings raise
            raise nvml.DriverGone(str(error)) from None

    def xids(self) -> list[tuple[str, Xid]]:
        """Return the Xids since the last time, each with the UUID of its GPU."""
        return self._events.arrived()

    async def close(self) -> None:
        """Close NVML, if it lets itself be closed."""
        try:
            await self._lane.call(self._library.nvmlShutdown)
        except Exception as error:  # noqa: BLE001 - whatever the bindings raise
            _log.warning("NVML is left as it is", extra={"fields": {"reason": str(error)}})


async def opened(library: nvml.Nvml | None, lanes: Lanes) -> Session:
    """Open ``library`` and return the session.

    Raises:
        Unusable: it cannot be opened now.
    """
    if library is None:
        raise Unusable(DriverState.NO_BINDINGS, "nvidia-ml-py is not installed (tidegate[agent])")
    lane = lanes("nvml")
    try:
        await lane.call(library.nvmlInit, grace=INIT_SECONDS)
        version = await _version(library, lane)
        count = await lane.call(library.nvmlDeviceGetCount)
        events = Events(library, lanes("xids"))
        found = [await _gpu(library, index, lane, lanes, events) for index in range(min(count, MAX_GPUS))]
    except Hung as error:
        raise Unusable(DriverState.HUNG, str(error)) from None
    except nvml.DriverGone as error:
        raise Unusable(DriverState.NOT_LOADED, str(error)) from None
    except Exception as error:  # noqa: BLE001 - whatever the bindings raise
        raise Unusable(_STATES.get(nvml.code_of(error) or 0, DriverState.ERROR), str(error)) from None
    return Session(library, Driver(DriverState.USABLE, version), tuple(found), events, lane)


async def _version(library: nvml.Nvml, lane: Lane) -> str | None:
    try:
        version: str = await lane.call(library.nvmlSystemGetDriverVersion)
    except Hung:
        raise
    except Exception:  # noqa: BLE001 - it is not needed for anything
        return None
    return version


async def _gpu(library: nvml.Nvml, index: int, lane: Lane, lanes: Lanes, events: Events) -> Gpu:
    unnamed = Identity(identity.unnamed(index), index)
    own = lanes(f"gpu{index}")
    try:
        handle = await lane.call(library.nvmlDeviceGetHandleByIndex, index)
    except Hung:
        raise
    except Exception as error:
        if nvml.code_of(error) in {nvml.UNINITIALIZED, nvml.DRIVER_NOT_LOADED}:
            raise
        return Gpu(library, None, unnamed, own)
    gpu = Gpu(library, handle, unnamed, own)
    try:
        gpu.identity = await identity.read(gpu)
        await events.register(gpu)
    except (Hung, nvml.Lost, nvml.ResetRequired) as error:
        _log.warning("a GPU does not say who it is", extra={"fields": {"gpu": index, "reason": str(error)}})
    return gpu


async def read(gpu: Gpu, now: Callable[[], float], seconds: float) -> Reading:
    """Return what all signals of ``gpu`` say within ``seconds``; a call that hangs or finds the GPU lost ends it.

    Raises:
        DriverGone: NVML must be opened again.
    """
    if gpu.handle is None:
        return Reading(now(), Answer.LOST)
    gpu.begin_reading(seconds)
    values: dict[str, Any] = {}
    answer = Answer.READ
    try:
        for name, ask in SIGNALS.items():
            values[name] = await ask(gpu)
    except Hung:
        answer = Answer.HUNG
    except nvml.Lost:
        answer = Answer.LOST
    except nvml.ResetRequired:
        answer = Answer.RESET_REQUIRED
    if answer is Answer.READ and all(value is None for value in values.values()):
        answer = Answer.SILENT
    return Reading(now(), answer, **values)
