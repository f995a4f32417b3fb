"""VRAM: how much is used, and by whom."""

from tidegate.agent.gpu import Gpu
from tidegate.agent.readings import Memory, Process

MAX_PROCESSES = 64
"""The largest are kept."""


async def read(gpu: Gpu) -> Memory | None:
    """Return what is used and free, and the processes that compute."""
    memory = await gpu.ask("nvmlDeviceGetMemoryInfo")
    found = await gpu.ask("nvmlDeviceGetComputeRunningProcesses")
    if memory is None:
        return None
    processes = None
    if found is not None:
        held = sorted(found, key=lambda process: (-(process.usedGpuMemory or 0), process.pid))
        processes = tuple(Process(process.pid, process.usedGpuMemory) for process in held[:MAX_PROCESSES])
    return Memory(memory.total, memory.used, memory.free, processes)
