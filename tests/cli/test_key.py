import re

from click.testing import CliRunner

from tidegate.cli import main
from tidegate.runtime.callers import hashed


def test_a_key_is_made_and_told_with_its_hash() -> None:
    result = CliRunner().invoke(main, ["key"])
    assert result.exit_code == 0
    found = re.fullmatch(r"key:  (sk-tidegate-[\w-]{43})\nhash: (sha256:[0-9a-f]{64})\n", result.output)
    assert found is not None
    assert hashed(found[1]) == found[2]
    assert CliRunner().invoke(main, ["key"]).output != result.output


def test_a_key_that_is_there_already_is_hashed_from_standard_input() -> None:
    result = CliRunner().invoke(main, ["key", "--hash"], input="sk-abc\n")
    assert (result.exit_code, result.output) == (0, f"{hashed('sk-abc')}\n")
    assert CliRunner().invoke(main, ["key", "--hash"], input="\n").exit_code == 1
