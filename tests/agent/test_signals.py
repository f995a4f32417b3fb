"""Every signal through nvidia-ml-py and the stub, as ``tidegate agent --once`` shows it."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.agent.stub import Orders

UUID = "GPU-00000000-0000-4000-8000-000000000000"


def look(orders: Orders, *lines: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
    orders.give(*lines)
    command = [sys.executable, "-m", "tidegate", "agent", "--once", "--node", "n1", *options]
    done = subprocess.run(command, env=orders.environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_everything_that_a_gpu_tells_is_in_the_report(orders: Orders) -> None:
    report = look(orders, "gpus 1", "set memory_used 0 2048", "set throttled 0 68", "set pcie_replays 0 3")
    assert report["driver"] == "DRIVER_STATE_USABLE"
    assert report["driver_version"] == "580.65.06"
    (gpu,) = report["gpus"]
    assert gpu["uuid"] == UUID
    assert gpu.pop("age_ms", "0").isdigit()
    assert gpu == {
        "uuid": UUID,
        "name": "NVIDIA Stub 0",
        "pci_bus_id": "00000000:01:00.0",
        "state": "STATE_HEALTHY",
        "answer": "ANSWER_READ",
        "memory_total_bytes": str(80 << 30),
        "memory_used_bytes": "2048",
        "memory_free_bytes": str((80 << 30) - 2048),
        "processes": [{"pid": 4242, "used_bytes": "2048"}],
        "gpu_percent": 40,
        "memory_percent": 20,
        "celsius": 50,
        "slowdown_celsius": 87,
        "milliwatts": "300000",
        "limit_milliwatts": "700000",
        "throttling": {"reasons": ["hw_thermal_slowdown", "sw_power_cap"]},
        "ecc_corrected": "0",
        "ecc_uncorrected": "0",
        "rows_remapped_corrected": 0,
        "rows_remapped_uncorrected": 0,
        "row_remap_pending": False,
        "row_remap_failed": False,
        "nvlinks_active": 4,
        "nvlinks_inactive": 0,
        "nvlinks_lost": 0,
        "nvlink_errors": "0",
        "pcie_width": 16,
        "pcie_max_width": 16,
        "pcie_replays": "3",
        "mig_enabled": False,
    }


def test_instances_of_a_gpu_that_is_cut_are_reported(orders: Orders) -> None:
    (gpu,) = look(orders, "set mig 0 1")["gpus"]
    assert gpu["mig_enabled"] is True
    assert [len(instance["uuid"]) for instance in gpu["mig_instances"]] == [len(UUID)] * 2


def test_what_a_card_does_not_support_is_missing_and_the_rest_is_there(orders: Orders) -> None:
    unsupported = [
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetMigMode",
    ]
    (gpu,) = look(orders, *(f"fail {name} 3" for name in unsupported))["gpus"]
    assert gpu["state"] == "STATE_HEALTHY"
    missing = ("ecc", "row", "nvlink", "milliwatts", "gpu_percent", "mig")
    assert [name for name in gpu if name.startswith(missing)] == []
    assert gpu["limit_milliwatts"] == "700000"
    assert gpu["celsius"] == 50


@pytest.mark.parametrize(
    ("order", "code", "state"),
    [
        ("lost 0", "gpu_lost", "STATE_FAILED"),
        ("set row_remap_failed 0 1", "row_remap_failed", "STATE_FAILED"),
        ("set row_remap_pending 0 1", "row_remap_pending", "STATE_DEGRADED"),
        ("set pcie_width 0 8", "pcie_width", "STATE_DEGRADED"),
    ],
)
def test_a_fault_that_shows_at_once_is_a_reason(order: str, code: str, state: str, orders: Orders) -> None:
    (gpu,) = look(orders, order)["gpus"]
    assert (gpu["state"], [reason["code"] for reason in gpu["reasons"]]) == (state, [code])


def test_a_call_that_hangs_is_a_reason_for_its_gpu_alone(orders: Orders) -> None:
    lines = ("gpus 2", "hang nvmlDeviceGetPowerUsage 1")
    report = look(orders, *lines, options=("--nvml-deadline", "0.3"))
    assert [gpu["state"] for gpu in report["gpus"]] == ["STATE_HEALTHY", "STATE_DEGRADED"]
    assert report["gpus"][1]["reasons"][0]["code"] == "nvml_hung"


def test_a_driver_that_is_not_loaded_is_a_finding(orders: Orders) -> None:
    report = look(orders, "init 9")
    assert report["driver"] == "DRIVER_STATE_NOT_LOADED"
    assert "gpus" not in report
