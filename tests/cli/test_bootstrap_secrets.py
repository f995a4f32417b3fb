"""``tidegate bootstrap --secrets``: where Envoy finds its certificates."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.authority import Authority, tls
from tests.envoy_process import validate
from tidegate.cli import main

POOLS = [{"name": "a", "endpoints": [{"address": "127.0.0.1:1"}]}]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tidegate.yaml"
    secured = {"tls": tls(Authority(tmp_path, "ours"), Authority(tmp_path, "theirs"))}
    path.write_text(yaml.safe_dump({"control": secured, "pools": POOLS}))
    return path


async def test_with_a_folder_envoy_is_told_where_its_certificates_are_by_files_in_it(
    file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "secrets"
    done = CliRunner().invoke(main, ["bootstrap", "--config", str(file), "--id", "edge-1", "--secrets", str(folder)])
    assert done.exit_code == 0, done.output
    told = yaml.safe_load(done.output)
    assert told["node"]["id"] == "edge-1"
    written = {path.name: json.loads(path.read_text()) for path in folder.iterdir()}
    assert sorted(written) == ["envoy_ca.json", "envoy_certificate.json"]
    assert all(str(folder / name) in done.output for name in written)
    (secret,) = written["envoy_certificate.json"]["resources"]
    assert secret["tlsCertificate"]["privateKey"] == {"filename": str(tmp_path / "envoy.key")}
    status, said = await validate(done.output)
    assert status == 0, said


def test_without_tls_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "tidegate.yaml"
    path.write_text(yaml.safe_dump({"pools": POOLS}))
    done = CliRunner().invoke(main, ["bootstrap", "--config", str(path), "--secrets", str(tmp_path / "secrets")])
    assert done.exit_code == 0, done.output
    assert [*(tmp_path / "secrets").iterdir()] == []


def test_a_folder_that_cannot_be_written_is_named(file: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["bootstrap", "--config", str(file), "--secrets", str(file / "x")])
    assert done.exit_code == 1
    assert done.output == f"tidegate: cannot write into {tmp_path}/tidegate.yaml/x: Not a directory\n"
