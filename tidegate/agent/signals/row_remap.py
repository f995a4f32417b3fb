"""Rows of memory that were replaced by spare ones (from Ampere on)."""

from tidegate.agent.gpu import Gpu
from tidegate.agent.readings import RowRemap


async def read(gpu: Gpu) -> RowRemap | None:
    """Return how many rows were remapped, whether more wait for a reset, and whether one could not be."""
    rows = await gpu.ask("nvmlDeviceGetRemappedRows")
    if rows is None:
        return None
    corrected, uncorrected, pending, failed = rows
    return RowRemap(corrected, uncorrected, bool(pending), bool(failed))
