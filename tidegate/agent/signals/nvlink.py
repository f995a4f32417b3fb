"""The links to other GPUs, and what they had to repeat."""

from typing import Final

from tidegate.agent import nvml
from tidegate.agent.gpu import Gpu
from tidegate.agent.readings import NvLink

MAX_LINKS: Final = 36
"""NVML_NVLINK_MAX_LINKS"""

COUNTERS: Final = (0, 1, 2)
"""NVML_NVLINK_ERROR_DL_REPLAY, _RECOVERY and _CRC_FLIT"""


async def read(gpu: Gpu) -> NvLink | None:
    """Return how many links are up, down and lost, and the errors of those that are up; ``None`` without any link."""
    states: list[bool] = []
    errors: int | None = None
    for link in range(MAX_LINKS):
        # A GPU has fewer links than there can be, and says so at the first that it does not have.
        active = await gpu.ask("nvmlDeviceGetNvLinkState", link, expected=(nvml.INVALID_ARGUMENT, nvml.NOT_SUPPORTED))
        if active is None:
            break
        states.append(bool(active))
        for counter in COUNTERS if active else ():
            count = await gpu.ask("nvmlDeviceGetNvLinkErrorCounter", link, counter)
            if count is None:
                break
            errors = (errors or 0) + count
    if not states:
        return None
    gpu.links_seen.update(link for link, active in enumerate(states) if active)
    lost = sum(not active and link in gpu.links_seen for link, active in enumerate(states))
    return NvLink(sum(states), len(states) - sum(states), lost, errors)
