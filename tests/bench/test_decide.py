"""The measure of what a decision costs."""

import sys

import pytest

from bench import decide


def test_each_decision_of_the_second_half_is_timed() -> None:
    took = decide.measure("prefix_affinity", 12, 40)
    assert len(took) == 20
    assert all(seconds >= 0.0 for seconds in took)


def test_the_table_has_a_row_for_each_policy_and_a_column_for_each_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--decisions", "20", "--size", "10", "--size", "30", "--policy", "random", "--policy", "session"]
    monkeypatch.setattr(sys, "argv", ["decide", *arguments])
    decide.main()
    heading, bounds, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["policy", "10", "endpoints", "30", "endpoints"]
    assert "40" in bounds
    assert [row.split()[0] for row in rows] == ["random", "session"]
    assert all(row.count("/") == 2 for row in rows)
