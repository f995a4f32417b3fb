"""What is exported of a GPU."""

from typing import Any

from tests.health.reports import GIB, gpu
from tidegate.health import figures
from tidegate.telemetry.gpus import COUNTERS, GAUGES

EVERYTHING: dict[str, Any] = {
    "gpu_percent": 50,
    "memory_percent": 25,
    "celsius": 60,
    "slowdown_celsius": 90,
    "milliwatts": 350_500,
    "limit_milliwatts": 700_000,
    "ecc_corrected": 1,
    "ecc_uncorrected": 2,
    "rows_remapped_corrected": 3,
    "rows_remapped_uncorrected": 4,
    "row_remap_pending": True,
    "row_remap_failed": False,
    "pages_retired_single_bit": 5,
    "pages_retired_double_bit": 6,
    "page_retirement_pending": True,
    "nvlinks_active": 18,
    "nvlinks_lost": 1,
    "nvlink_errors": 7,
    "pcie_width": 8,
    "pcie_max_width": 16,
    "pcie_replays": 9,
}


def test_every_metric_has_its_figure_in_base_units() -> None:
    found = figures.values(gpu(**EVERYTHING))
    assert set(found) == {*GAUGES, *COUNTERS}
    assert found["memory_total_bytes"] == 80 * GIB
    assert (found["utilization_ratio"], found["memory_utilization_ratio"]) == (0.5, 0.25)
    assert (found["power_watts"], found["power_limit_watts"]) == (350.5, 700.0)
    assert (found["remapped_rows"], found["retired_pages"]) == (7.0, 11.0)
    assert (found["row_remap_pending"], found["row_remap_failed"]) == (1.0, 0.0)


def test_what_is_unknown_is_not_there() -> None:
    assert set(figures.values(gpu(memory_total_bytes=None, memory_used_bytes=None))) == {"memory_free_bytes"}
    assert figures.values(gpu(rows_remapped_corrected=3))["remapped_rows"] == 3.0
