"""Memory errors since the driver was loaded."""

from typing import Final

from tidegate.agent.gpu import Gpu
from tidegate.agent.readings import Ecc

CORRECTED: Final = 0
UNCORRECTED: Final = 1
"""NVML_MEMORY_ERROR_TYPE_*"""
VOLATILE: Final = 0
"""NVML_VOLATILE_ECC: since the driver was loaded; the other counter lasts for the GPU's life."""


async def read(gpu: Gpu) -> Ecc | None:
    """Return both counts; they are not known where the GPU has no ECC, or has it turned off."""
    corrected = await gpu.ask("nvmlDeviceGetTotalEccErrors", CORRECTED, VOLATILE)
    uncorrected = await gpu.ask("nvmlDeviceGetTotalEccErrors", UNCORRECTED, VOLATILE)
    return None if corrected is None and uncorrected is None else Ecc(corrected, uncorrected)
