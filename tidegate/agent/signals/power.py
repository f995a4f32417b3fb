"""What the GPU draws and may draw, and why its clocks are lower than they could be."""

from collections.abc import Mapping
from types import MappingProxyType

from tidegate.agent import nvml
from tidegate.agent.gpu import Gpu
from tidegate.agent.readings import Power

REASONS: Mapping[int, str] = MappingProxyType(
    {
        0x001: "gpu_idle",
        0x002: "clocks_setting",
        0x004: "sw_power_cap",
        0x008: "hw_slowdown",
        0x010: "sync_boost",
        0x020: "sw_thermal_slowdown",
        0x040: "hw_thermal_slowdown",
        0x080: "hw_power_brake",
        0x100: "display_clock_setting",
    }
)
"""By NVML's bit, nvmlClocksEventReason* in nvml.h; further bits are left out."""


async def read(gpu: Gpu) -> Power | None:
    """Return what is known of power and clocks."""
    draw = await gpu.ask("nvmlDeviceGetPowerUsage")
    limit = await gpu.ask("nvmlDeviceGetEnforcedPowerLimit")
    # The newer name, and the older one of drivers before 535.
    bits = await gpu.ask("nvmlDeviceGetCurrentClocksEventReasons", expected=(nvml.FUNCTION_NOT_FOUND,))
    if bits is None:
        bits = await gpu.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    if draw is None and limit is None and bits is None:
        return None
    throttled = None if bits is None else frozenset(name for bit, name in REASONS.items() if bits & bit)
    return Power(draw, limit, throttled)
