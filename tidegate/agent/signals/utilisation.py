"""How busy the GPU and its memory are."""

from tidegate.agent.gpu import Gpu
from tidegate.agent.readings import Utilisation


async def read(gpu: Gpu) -> Utilisation | None:
    """Return both shares; they are not known where the GPU is cut into instances."""
    rates = await gpu.ask("nvmlDeviceGetUtilizationRates")
    return None if rates is None else Utilisation(rates.gpu, rates.memory)
