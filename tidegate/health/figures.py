"""What is exported of a GPU: its measurements in base units, by the names of the metrics. Pure."""

from collections.abc import Iterator
from typing import Final

from tidegate.health.reported import Gpu

_AS_THEY_ARE: Final = {
    "memory_total_bytes": "memory_total_bytes",
    "memory_used_bytes": "memory_used_bytes",
    "memory_free_bytes": "memory_free_bytes",
    "celsius": "temperature_celsius",
    "slowdown_celsius": "slowdown_temperature_celsius",
    "row_remap_pending": "row_remap_pending",
    "row_remap_failed": "row_remap_failed",
    "page_retirement_pending": "page_retirement_pending",
    "nvlinks_active": "nvlinks_active",
    "nvlinks_lost": "nvlinks_lost",
    "pcie_width": "pcie_lanes",
    "pcie_max_width": "pcie_max_lanes",
    "ecc_corrected": "ecc_corrected_errors",
    "ecc_uncorrected": "ecc_uncorrected_errors",
    "nvlink_errors": "nvlink_errors",
    "pcie_replays": "pcie_replays",
}
_IN_OTHER_UNITS: Final = {
    "gpu_percent": ("utilization_ratio", 100.0),
    "memory_percent": ("memory_utilization_ratio", 100.0),
    "milliwatts": ("power_watts", 1000.0),
    "limit_milliwatts": ("power_limit_watts", 1000.0),
}
_SUMS: Final = {
    "remapped_rows": ("rows_remapped_corrected", "rows_remapped_uncorrected"),
    "retired_pages": ("pages_retired_single_bit", "pages_retired_double_bit"),
}


def values(gpu: Gpu) -> dict[str, float]:
    """Return what is known of ``gpu``."""
    return dict(_known(gpu))


def _known(gpu: Gpu) -> Iterator[tuple[str, float]]:
    for field, name in _AS_THEY_ARE.items():
        if (value := getattr(gpu, field)) is not None:
            yield name, float(value)
    for field, (name, divisor) in _IN_OTHER_UNITS.items():
        if (value := getattr(gpu, field)) is not None:
            yield name, value / divisor
    for name, fields in _SUMS.items():
        parts = [value for field in fields if (value := getattr(gpu, field)) is not None]
        if parts:
            yield name, float(sum(parts))
