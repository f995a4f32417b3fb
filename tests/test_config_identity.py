"""What the configuration may say of tokens, certificates and metadata that say who asks."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.configurations import faults, parsed
from tests.tokens_issued import Issuer
from tidegate.config import Config
from tidegate.config_identity import Metadata, attributes
from tidegate.config_values import CHECKED

POOLS = [{"name": "default", "engine": "none", "endpoints": [{"address": "127.0.0.1:1"}]}]


def with_keys(path: Path) -> dict[str, Any]:
    jwt = {"issuer": "https://issuer.example", "jwks_file": str(path)}
    return {"pools": POOLS, "tenants": [{"name": "acme"}], "authentication": {"jwt": jwt}}


def test_an_issuers_keys_are_read_with_the_configuration_and_a_new_reading_is_another_configuration(
    tmp_path: Path,
) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(Issuer().key_set()))
    first = parsed(with_keys(file))
    assert first.authentication.jwt is not None
    assert json.loads(first.authentication.jwt.keys)["keys"][0]["kid"] == "one"
    assert first == parsed(with_keys(file))
    file.write_text(json.dumps(Issuer(kid="two").key_set()))
    assert first != parsed(with_keys(file))


def test_a_worker_does_not_read_them_again(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(Issuer().key_set()))
    text = parsed(with_keys(file)).model_dump_json()
    file.unlink()
    assert Config.model_validate_json(text, context=CHECKED).authentication.jwt is not None
    with pytest.raises(ValidationError):
        Config.model_validate_json(text)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": []}', b'{"keys": [1]}', b'{"keys": [{}]}'),
        *(b"\xff\xfe", b"[" * 100_000, b" " * 2_000_000),
    ],
)
def test_what_is_no_key_set_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(content)
    (said,) = faults(with_keys(file))
    assert said.startswith("authentication.jwt: expected a JSON Web Key Set, a mapping with a list of keys, in ")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (said,) = faults(with_keys(tmp_path / "none.json"))
    assert said.startswith("authentication.jwt: expected a JSON Web Key Set; ")
    assert said.endswith("cannot be read (No such file or directory)")


@pytest.mark.parametrize("uri", ["https://issuer.example/keys", "https://10.0.0.1:8443/k?x=1", "http://127.0.0.1:80/"])
def test_keys_may_come_from_a_url_that_nobody_can_forge(uri: str) -> None:
    jwt = {"issuer": "x", "jwks_uri": uri}
    config = parsed({"pools": POOLS, "tenants": [{"name": "acme"}], "authentication": {"jwt": jwt}})
    assert config.authentication.attributes == (
        "metadata.filter_metadata['envoy.filters.http.jwt_authn']['payload']['sub']",
    )


def test_each_source_needs_tenants() -> None:
    authentication = {
        "jwt": {"issuer": "x", "jwks_uri": "https://x/"},
        "metadata": {"namespace": "n", "path": ["k"]},
        "certificate": "subject",
    }
    tls = {"certificate": "/c", "key": "/k", "client_ca": "/a", "read_by": "envoy"}
    assert faults({"pools": POOLS, "authentication": authentication, "listener": {"tls": tls}}) == [
        f"authentication.{source}: expected tenants beside it, or nobody looks at it"
        for source in ("jwt", "certificate", "metadata")
    ]


def test_what_is_nearest_to_the_one_who_asks_counts_for_more() -> None:
    assert attributes(Metadata(namespace="n", path=("a", "b")), None, "dns_san") == (
        "metadata.filter_metadata['n']['a']['b']",
        "connection.dns_san_peer_certificate",
    )
    assert attributes(None, None, None) == ()


@given(st.text(max_size=300), st.lists(st.text(max_size=20), max_size=10))
def test_no_name_gets_out_of_its_quotes(namespace: str, path: list[str]) -> None:
    try:
        metadata = Metadata(namespace=namespace, path=tuple(path))
    except ValidationError:
        return
    (attribute,) = attributes(metadata, None, None)
    assert "\\" not in attribute
    assert attribute.count("'") == 2 * (1 + len(path))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_whatever_a_filter_is_told_comes_out_of_the_configuration_as_it_was(value: Any) -> None:
    own = {"name": "mine", "type": "a.b", "config": {"k": value, "inner": {"x": 1}}}
    config = Config.model_validate({"pools": POOLS, "listener": {"filters": [own]}}, strict=False)
    dumped = config.model_dump_json()
    assert json.loads(dumped)["listener"]["filters"] == [own]
    again = Config.model_validate_json(dumped, context=CHECKED)
    assert again == config
    assert hash(again) == hash(config)
