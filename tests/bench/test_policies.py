"""The bench of policies: its verdicts, and one small run of the whole."""

from pathlib import Path

import pytest

from bench import policies
from bench.verdicts import Cell, Figures, verdicts

CELL = Cell("azure", "mixed", 0.8)


def figures(p50: float, p99: float, end_to_end: float = 5.0, goodput: float = 0.9) -> Figures:
    return Figures(p50, p99, 0.1, end_to_end, goodput, 0.0, 0.0)


def said(**by_policy: Figures) -> list[str]:
    return list(verdicts({CELL: by_policy}))


def test_all_holds_when_ours_is_far_ahead() -> None:
    lines = said(
        predicted_latency=figures(0.1, 1.0), least_tokens=figures(0.2, 2.0), oracle=figures(0.1, 1.0, end_to_end=4.5)
    )
    assert len(lines) == 5
    assert all(line.startswith("holds ") for line in lines)


@pytest.mark.parametrize(
    ("ours", "failing"),
    [
        (figures(0.1, 1.1), "TTFT p99 1.100 s, best other 2.000 s (least_tokens): 0.55, at most 0.5"),
        (figures(0.22, 1.0), "TTFT p50 0.220 s, best other 0.200 s (least_tokens): 1.10, at most 1.05"),
        (figures(0.1, 1.0, goodput=0.8), "goodput 80.0%, best other 90.0% (least_tokens)"),
        (figures(0.1, 1.0, end_to_end=6.0), "mean end-to-end time 1.33 times the oracle's, at most 1.15"),
    ],
)
def test_what_does_not_hold_is_said_with_its_figures(ours: Figures, failing: str) -> None:
    lines = said(
        predicted_latency=ours, least_tokens=figures(0.2, 2.0), random=figures(1, 9), oracle=figures(0.1, 1, 4.5)
    )
    assert [line for line in lines if line.startswith("FAILS ")] == [f"FAILS  azure, mixed fleet, 80%: {failing}"]


def test_the_oracle_is_not_one_of_the_others() -> None:
    lines = said(predicted_latency=figures(0.1, 1.0), least_tokens=figures(0.2, 2.0), oracle=figures(0.01, 0.1))
    assert "best other 2.000 s (least_tokens)" in lines[0]


def test_without_ours_or_others_there_is_no_verdict() -> None:
    assert said(least_tokens=figures(0.2, 2.0)) == []
    assert said(predicted_latency=figures(0.2, 2.0), oracle=figures(0.1, 1.0)) == []


def test_a_run_prints_every_cell_of_the_traces_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"2023-11-16 18:{at // 60:02}:{at % 60:02}.0000000,{300 + at},{20 + at % 30}" for at in range(120)]
    (tmp_path / policies.FILES["azure"]).write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    asked = ("--traces", str(tmp_path), "--seeds", "1", "--load", "0.8", "--json", str(tmp_path / "figures.json"))
    assert policies.main([*asked, "--policy", "least_tokens", "--policy", "predicted_latency"]) == 0
    printed = capsys.readouterr().out
    assert "azure, homogeneous fleet, 80%: 60 requests" in printed
    assert "azure, mixed fleet, 80%: 60 requests" in printed
    assert "mooncake: skipped" in printed
    assert printed.count("least_tokens  ") >= 2
    assert (tmp_path / "figures.json").read_text().count('"policy"') == 4


def test_without_any_trace_nothing_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert policies.main(["--traces", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("skipped") == 2
