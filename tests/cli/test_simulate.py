"""``tidegate simulate`` as one types it."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import main

SMALL = ("--fleet", "h100:2", "--requests", "60", "--policy", "least_tokens", "--policy", "oracle")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *arguments])


def reports(*arguments: str) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, list)
    return found


def test_policies_stand_side_by_side() -> None:
    result = run(*SMALL)
    assert result.exit_code == 0, result.output
    assert "poisson: 60 requests" in result.stdout
    assert "on h100:2; good: TTFT <= 2 s and TPOT <= 100 ms" in result.stdout
    first, second = (
        line.split() for line in result.stdout.splitlines() if line.strip().startswith(("least", "oracle"))
    )
    assert first[0] == "least_tokens"
    assert second[0] == "oracle"
    assert len(first) == len(second) == 16


def test_the_json_has_every_figure_of_every_run() -> None:
    found = reports(*SMALL, "--seed", "1", "--seed", "2", "--warmup", "0.5", "--slo-ttft", "3")
    assert [(one["policy"], one["seed"]) for one in found] == [
        ("least_tokens", 1),
        ("least_tokens", 2),
        ("oracle", 1),
        ("oracle", 2),
    ]
    assert all(one["requests"] == 30 and one["slo"] == {"ttft": 3.0, "tpot": 0.1} for one in found)
    assert all(set(one["ttft"]) == {"mean", "p50", "p90", "p99"} for one in found)


def test_the_same_command_prints_the_same() -> None:
    assert run(*SMALL).stdout == run(*SMALL).stdout


def test_a_trace_is_read_split_and_scaled(tmp_path: Path) -> None:
    lines = [f'{{"timestamp": {at * 1000}, "input_length": {at + 1}, "output_length": 5}}' for at in range(20)]
    (tmp_path / "small.jsonl").write_text("\n".join(lines))
    trace = ("--trace", str(tmp_path / "small.jsonl"), "--fleet", "h100:1", "--policy", "random", "--rate", "2")
    whole, test = reports(*trace), reports(*trace, "--split", "test")
    assert whole[0]["workload"] == "small"
    assert whole[0]["requests"] == 20
    assert whole[0]["seconds"] == pytest.approx(9.5, abs=0.2)
    assert test[0]["requests"] == 10


def test_without_a_name_all_policies_run() -> None:
    found = reports("--fleet", "h100:1", "--requests", "20")
    assert {"least_tokens", "random", "round_robin", "oracle"} <= {one["policy"] for one in found}


def test_faults_are_made() -> None:
    sound, faulty = reports(*SMALL), reports(*SMALL, "--faults", "die:0@0.5+100", "--faults", "slow:1@0.5+100")
    assert sound[0]["endings"]["failed"] == 0
    assert faulty[0]["end_to_end"]["p99"] > sound[0]["end_to_end"]["p99"]


def test_with_a_queue_classes_and_waits_are_told() -> None:
    arguments = ("--fleet", "a100:1", "--workload", "classes", "--requests", "300", "--utilisation", "4")
    queued = (*arguments, "--policy", "least_tokens", "--queue", "1.5")
    result = run(*queued)
    assert result.exit_code == 0, result.output
    assert "turned away" in result.stdout
    assert "relative p50" in result.stdout
    assert [line.split()[1] for line in result.stdout.splitlines() if line.strip().startswith("least")][1:4] == [
        "10",
        "0",
        "-1",
    ]
    (report,) = reports(*queued)
    assert report["waits"]["requests"] > 0
    assert [one["priority"] for one in report["classes"]] == [10, 0, -1]
    without = run(*arguments, "--policy", "least_tokens").stdout
    assert "turned away" in without
    assert "relative p50" not in without


def test_the_number_of_endpoints_is_searched() -> None:
    arguments = ("--fleet", "a100:1", "--requests", "100", "--policy", "least_request", "--capacity", "--rate", "20")
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "least_request: " in result.stdout
    found = json.loads(run(*arguments, "--json").stdout)
    assert f"{found['least_request']['endpoints']} endpoints (a100:" in result.stdout
    none = run(*arguments, "--slo-ttft", "0.000001", "--most", "4")
    assert "not even with 4 endpoints" in none.stdout


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is an optional dependency")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_plots_are_drawn(tmp_path: Path) -> None:
    result = run(*SMALL, "--plots", str(tmp_path / "plots"))
    assert result.exit_code == 0, result.output
    drawn = sorted((tmp_path / "plots").iterdir())
    assert [path.name for path in drawn] == ["end_to_end.png", "goodput.png", "kv_usage.png", "ttft.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--fleet", "tpu:4"), 2, "expected one of h100, a100, rtx4090"),
        (("--faults", "burn:1@2+3"), 2, "expected KIND:ENDPOINT@SECOND+SECONDS"),
        (("--faults", "die:9@2+3", "--fleet", "h100:2", "--policy", "random"), 1, "expected 0 to 1"),
        (("--rate", "3", "--utilisation", "0.5"), 2, "exclude each other"),
        (("--trace", __file__), 1, "no known format"),
        (("--policy", "psychic"), 2, "psychic"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments: tuple[str, ...], status: int, said: str) -> None:
    result = run("--requests", "20", *arguments)
    assert result.exit_code == status
    assert said in result.output.splitlines()[-1]
