"""The measure of what lanes are worth."""

import re

import pytest

from bench import lanes


def test_each_policy_has_a_row_without_lanes_and_one_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--requests", "300", "--seeds", "1", "--load", "0.3", "--policy", "random", "--policy", "least_tokens"]
    assert lanes.main(arguments) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if re.search(r"\d\.\d{3} / \d", line)]
    assert [row.partition("  0.")[0].strip() for row in rows] == [
        "random",
        "with lanes",
        "least_tokens",
        "with lanes",
    ] * 2
    assert all(row.split()[-1] == "0" for row in rows)
