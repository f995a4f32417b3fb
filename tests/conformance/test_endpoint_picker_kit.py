"""The endpoint pickers' conformance kit itself: pointed at pickers that are right, and wrong in one way each."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.stub_picker import FAULTS
from tests.e2e.stack import Process
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
CAUGHT = {
    "answers the headers at once": "test_a_request_is_held_until_its_body_has_ended",
    "ignores the subset": "test_a_subset_of_strangers_is_refused",
    "ignores ports": "test_another_port_is_another_endpoint",
    "has header and metadata differ": "test_only_control_headers_and_the_destination_are_changed",
    "loses a piece of the body": "test_a_body_that_ends_with_an_empty_piece_is_whole",
    "ends with OK instead of refusing": "test_invalid_json_is_refused",
}


def kit(folder: Path, fault: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the kit against a stub with this fault."""
    port, pods = free_port(), ",".join(f"127.0.0.1:{free_port()}" for _ in range(3))
    command = [sys.executable, "-m", "tests.conformance.stub_picker", str(port), pods, fault]
    stub = Process(command, folder / "stub.log")
    try:
        return subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
                "tests/conformance/endpoint_picker",
                *("--endpoint-picker-address", f"127.0.0.1:{port}", "--endpoint-picker-pods", pods),
                *arguments,
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        stub.kill()


def test_a_picker_that_keeps_to_the_protocol_passes(tmp_path: Path) -> None:
    done = kit(tmp_path, "none")
    assert done.returncode == 0, done.stdout[-4000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 50


@pytest.mark.parametrize("fault", CAUGHT)
def test_a_picker_with_a_fault_is_caught(tmp_path: Path, fault: str) -> None:
    done = kit(tmp_path, fault, "--endpoint-picker-patience", "2", "-k", CAUGHT[fault])
    assert done.returncode == 1, done.stdout[-4000:]
    assert f"::{CAUGHT[fault]}" in done.stdout


def test_every_fault_of_the_stub_is_looked_for() -> None:
    assert set(FAULTS) == {"none", *CAUGHT}
