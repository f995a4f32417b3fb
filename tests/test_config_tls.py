"""``control.tls``: what it takes, and what is said about files that cannot be used."""

from pathlib import Path
from typing import Any

import pytest

from tests.authority import Authority, tls
from tests.configurations import EVERY_KEY, faults, parsed


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    return tls(Authority(tmp_path, "ours"), Authority(tmp_path, "theirs"))


def with_tls(files: dict[str, Any]) -> dict[str, Any]:
    return {**EVERY_KEY, "control": {"tls": files}}


def test_certificates_that_can_be_used_are_taken(files: dict[str, Any]) -> None:
    found = parsed(with_tls(files)).control.tls
    assert found is not None
    assert found.files == (files["certificate"], files["key"], files["client_ca"])
    assert (found.envoy.ca, found.envoy.server_name) == (files["envoy"]["ca"], None)


def test_envoys_files_are_on_its_machine_and_not_looked_at(files: dict[str, Any]) -> None:
    files["envoy"] = {"certificate": "/e/c.pem", "key": "/e/k.pem", "ca": "/e/a.pem", "server_name": "tidegate.local"}
    found = parsed(with_tls(files)).control.tls
    assert found is not None
    assert found.envoy.server_name == "tidegate.local"


@pytest.mark.parametrize("key", ["certificate", "key", "client_ca"])
def test_a_file_that_is_not_there_is_named(files: dict[str, Any], key: str, tmp_path: Path) -> None:
    files[key] = str(tmp_path / "none.pem")
    said = f"control.tls: expected certificates that can be used: {tmp_path}/none.pem cannot be read"
    assert faults(with_tls(files)) == [f"{said} (No such file or directory)"]


def test_a_key_of_another_certificate_is_named(files: dict[str, Any]) -> None:
    files["key"] = files["envoy"]["key"]
    (line,) = faults(with_tls(files))
    assert line.endswith("the key is not the certificate's")


def test_a_path_must_be_absolute(files: dict[str, Any]) -> None:
    files["envoy"]["key"] = "key.pem"
    assert faults(with_tls(files)) == ["control.tls.envoy.key: expected an absolute path, not 'key.pem'"]


@pytest.mark.parametrize("name", ["", "a b", "-a", "a..b", "*.example"])
def test_a_server_name_is_a_dns_name_or_an_address(files: dict[str, Any], name: str) -> None:
    files["envoy"]["server_name"] = name
    (line,) = faults(with_tls(files))
    assert line.startswith("control.tls.envoy.server_name: expected a DNS name or an IP address")


def test_without_its_own_or_envoys_files_there_is_no_tls(files: dict[str, Any]) -> None:
    del files["envoy"], files["client_ca"]
    assert len(faults(with_tls(files))) == 2
