"""Which GPU it is, and which driver runs it."""

from tidegate.agent.gpu import Gpu
from tidegate.agent.readings import Identity


async def read(gpu: Gpu) -> Identity:
    """Return the identity; of a GPU that cannot say who it is, the index alone."""
    index = gpu.identity.ordinal
    uuid = await gpu.ask("nvmlDeviceGetUUID")
    name = await gpu.ask("nvmlDeviceGetName")
    pci = await gpu.ask("nvmlDeviceGetPciInfo")
    bus = None if pci is None else _text(pci.busId)
    return Identity(uuid or unnamed(index), index, name, bus)


def unnamed(index: int) -> str:
    """Return what stands for the UUID of the GPU at ``index`` while it does not tell its own."""
    return f"index-{index}"


def _text(value: str | bytes) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value
