import json
import subprocess
from pathlib import Path

import pytest

from bench import envoy, request_path


def binary() -> str | None:
    try:
        return envoy.binary()
    except FileNotFoundError:
        return None


needs_envoy = pytest.mark.skipif(binary() is None, reason="no Envoy on this machine")


@pytest.mark.parametrize(
    "argv",
    [["--seconds", "0"], ["--rounds", "-1"], ["--connections", "0"], ["--body-bytes", "10"], ["--against", "nginx"]],
)
def test_options_without_sense_are_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        request_path.arguments(argv)
    assert left.value.code == 2
    assert argv[0] in capsys.readouterr().err


@needs_envoy
@pytest.mark.parametrize(
    "config",
    [
        envoy.engine(10_001, [10_002, 10_003]),
        envoy.plain(10_001, 10_002, [10_003]),
        envoy.bare(10_001, 10_002, [10_003], 10_004),
    ],
)
def test_envoy_takes_the_configuration(config: str, tmp_path: Path) -> None:
    path = tmp_path / "envoy.json"
    path.write_text(config)
    command = [*envoy.command(path, 1), "--mode", "validate"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@needs_envoy
def test_plain_envoy_against_itself_runs_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    argv = ["--seconds", "0.3", "--rounds", "2", "--connections", "4", "--against", "plain", "--json", str(out)]
    assert request_path.main(argv) == 0
    found = json.loads(out.read_text())
    assert found["machine"]["envoy"].startswith("1.")
    assert found["settings"]["body_bytes"] == [4096]
    (measured,) = found["sizes"]
    assert (measured["body_bytes"], len(measured["rounds"])) == (4096, 2)
    for name in ("plain", "plain again"):
        middle = measured["medians"][name]
        assert middle["not_answered"] == 0
        assert middle["requests_per_second"] > 0
        assert 0 < middle["p50_ms"] <= middle["p99_ms"]
        assert middle["control_us"] is None
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("ratio   plain again/plain")
