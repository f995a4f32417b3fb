"""Pages of memory taken out of use (before Ampere)."""

from typing import Final

from tidegate.agent.gpu import Gpu
from tidegate.agent.readings import RetiredPages

SINGLE_BIT: Final = 0
DOUBLE_BIT: Final = 1
"""NVML_PAGE_RETIREMENT_CAUSE_*"""


async def read(gpu: Gpu) -> RetiredPages | None:
    """Return how many pages were retired for which cause, and whether more wait for a reset."""
    single = await gpu.ask("nvmlDeviceGetRetiredPages", SINGLE_BIT)
    double = await gpu.ask("nvmlDeviceGetRetiredPages", DOUBLE_BIT)
    pending = await gpu.ask("nvmlDeviceGetRetiredPagesPendingStatus")
    if single is None and double is None and pending is None:
        return None
    return RetiredPages(
        None if single is None else len(single),
        None if double is None else len(double),
        None if pending is None else bool(pending),
    )
