"""Instances that a GPU is cut into, each a device of its own."""

from typing import Final

from tidegate.agent import nvml
from tidegate.agent.gpu import Gpu
from tidegate.agent.readings import Mig, MigInstance

MAX_INSTANCES: Final = 16


async def read(gpu: Gpu) -> Mig | None:
    """Return whether the GPU is cut, and its instances; ``None`` for one that cannot be."""
    mode = await gpu.ask("nvmlDeviceGetMigMode", expected=(nvml.NOT_SUPPORTED,))
    if mode is None:
        return None
    if not mode[0]:
        return Mig(enabled=False, instances=())
    places = await gpu.ask("nvmlDeviceGetMaxMigDeviceCount")
    found = [await _instance(gpu, index) for index in range(min(places or 0, MAX_INSTANCES))]
    return Mig(enabled=True, instances=tuple(instance for instance in found if instance is not None))


async def _instance(gpu: Gpu, index: int) -> MigInstance | None:
    handle = await gpu.ask("nvmlDeviceGetMigDeviceHandleByIndex", index, expected=(nvml.NOT_FOUND,))
    if handle is None:
        return None
    uuid = await gpu.ask("nvmlDeviceGetUUID", of=handle)
    if uuid is None:
        return None
    memory = await gpu.ask("nvmlDeviceGetMemoryInfo", of=handle)
    return MigInstance(uuid, memory and memory.total, memory and memory.used)
