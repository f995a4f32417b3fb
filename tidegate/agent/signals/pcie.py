"""The link to the host: how wide it is, how wide it could be, and how often packets were sent again."""

from tidegate.agent.gpu import Gpu
from tidegate.agent.readings import Pcie


async def read(gpu: Gpu) -> Pcie | None:
    """Return what is known of the link. An idle GPU lowers its link's speed, not its width."""
    width = await gpu.ask("nvmlDeviceGetCurrPcieLinkWidth")
    max_width = await gpu.ask("nvmlDeviceGetMaxPcieLinkWidth")
    replays = await gpu.ask("nvmlDeviceGetPcieReplayCounter")
    return None if width is None and max_width is None and replays is None else Pcie(width, max_width, replays)
