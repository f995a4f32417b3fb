"""Every check has one name: of its file, in the configuration, as a label and of its test."""

from pathlib import Path
from typing import get_args

import pytest

from tidegate.config_checks import DEFAULTS, CheckName
from tidegate.engines import checks


def test_the_configuration_knows_the_checks_that_there_are() -> None:
    assert sorted(get_args(CheckName)) == sorted(DEFAULTS) == list(checks.names())


@pytest.mark.parametrize("name", checks.names())
def test_every_check_has_its_test_and_its_line_in_the_documentation(name: str) -> None:
    assert Path(__file__).with_name(f"test_{name}.py").is_file()
    assert f"`{name}`" in (Path(__file__).parents[3] / "docs/checks.md").read_text(encoding="utf-8")


def test_a_check_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KeyError):
        checks.find("icmp")
