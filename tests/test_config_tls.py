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


def issued(tmp_path: Path) -> dict[str, Any]:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("edge")
    return {"certificate": str(certificate), "key": str(key), "client_ca": str(authority.certificate)}


@pytest.mark.parametrize("key", ["certificate", "key", "client_ca"])
def test_files_for_clients_are_looked_at_where_tidegate_reads_them(tmp_path: Path, key: str) -> None:
    files = {**issued(tmp_path), key: str(tmp_path / "none.pem")}
    said = f"listener.tls: expected certificates that can be used: {tmp_path}/none.pem cannot be read"
    data = {"pools": EVERY_KEY["pools"][1:], "listener": {"tls": files}}
    assert faults(data) == [f"{said} (No such file or directory)"]
    data["listener"] = {"tls": {**files, "read_by": "envoy"}}
    found = parsed(data).listener.tls
    assert found is not None
    assert found.read_by == "envoy"


def test_a_pair_for_clients_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    files = {**issued(tmp_path), "key": str(Authority(tmp_path, "other").issue("other")[1])}
    (line,) = faults({"pools": EVERY_KEY["pools"][1:], "listener": {"tls": files}})
    assert line.endswith("the key is not the certificate's")


def test_a_key_leaves_the_machine_over_tls_alone(tmp_path: Path, files: dict[str, Any]) -> None:
    theirs = issued(tmp_path / "theirs")
    to = {"ca": theirs["client_ca"], "server_name": "e", "certificate": theirs["certificate"], "key": theirs["key"]}
    data: dict[str, Any] = {
        "listener": {"tls": theirs},
        "control": {"address": "0.0.0.0", "advertise": "127.0.0.1"},
        "pools": [{**EVERY_KEY["pools"][1], "tls": to}],
    }
    expected = "where the discovery service is not on a loopback address"
    assert faults(data) == [
        f"listener.tls: expected control.tls beside it, or read_by: envoy, {expected}",
        f"pools[0].tls: expected control.tls beside it {expected}",
    ]
    assert parsed({**data, "control": {**data["control"], "tls": files}}).pools[0].tls is not None
    assert parsed({**data, "control": {}}).pools[0].tls is not None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"server_name": None}, "expected server_name or san: any certificate of these authorities would do else"),
        ({"key": None}, "expected certificate and key, or neither"),
        ({"san": ["a b"]}, "expected a DNS name, an IP address or a URI, not 'a b'"),
        ({"ca": "/none"}, "expected certificates that can be used: /none cannot be read (No such file or directory)"),
    ],
)
def test_engines_are_known_by_name(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    theirs = issued(tmp_path)
    to = {"ca": theirs["client_ca"], "server_name": "e", "certificate": theirs["certificate"], "key": theirs["key"]}
    (line,) = faults({"pools": [{**EVERY_KEY["pools"][1], "tls": {**to, **change}}]})
    assert line.endswith(said)
    assert line.startswith("pools[0].tls")


@pytest.mark.parametrize("name", ["", "Fleet", "spiffe://fleet", "a/b"])
def test_a_trust_domain_is_a_name(files: dict[str, Any], name: str) -> None:
    (line,) = faults(with_tls({**files, "trust_domain": name}))
    assert line.startswith("control.tls.trust_domain: expected a SPIFFE trust domain, such as example.org")
