"""How hot the GPU is, against the temperature from which on this very model slows itself down."""

from typing import Final

from tidegate.agent.gpu import Gpu
from tidegate.agent.readings import Temperature

SENSOR_GPU: Final = 0
"""NVML_TEMPERATURE_GPU"""
THRESHOLD_SLOWDOWN: Final = 1
"""NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"""


async def read(gpu: Gpu) -> Temperature | None:
    """Return both temperatures."""
    celsius = await gpu.ask("nvmlDeviceGetTemperature", SENSOR_GPU)
    slowdown = await gpu.ask("nvmlDeviceGetTemperatureThreshold", THRESHOLD_SLOWDOWN)
    return None if celsius is None and slowdown is None else Temperature(celsius, slowdown)
