"""What Envoy is told of tokens, of clients' certificates and of filters of one's own."""

import json
from pathlib import Path
from typing import Any

import pytest
from envoy_data_plane.envoy.extensions.filters.http.ext_proc import v3 as ext_proc
from envoy_data_plane.envoy.extensions.filters.http.jwt_authn import v3 as jwt_authn
from envoy_data_plane.envoy.extensions.transport_sockets.tls import v3 as tls
from envoy_data_plane.google.protobuf import Struct
from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from tests.configurations import parsed
from tests.tokens_issued import Issuer
from tidegate.config import Config
from tidegate.config_identity import JWT_FILTER
from xds import build, filters, identity, listener, own_filters
from xds.type_urls import CLUSTER, LISTENER

POOLS = [{"name": "default", "engine": "none", "endpoints": [{"address": "127.0.0.1:1"}]}]
REMOTE = {"issuer": "https://issuer.example", "jwks_uri": "https://issuer.example/keys"}


def config(**sections: Any) -> Config:
    return parsed({"pools": POOLS, "tenants": [{"name": "acme"}], **sections})


def names(made: Config) -> list[str]:
    return [one.name for one in filters.http_filters(made)]


def verifying(made: Config) -> jwt_authn.JwtAuthentication:
    (found,) = [one for one in filters.http_filters(made) if one.name == JWT_FILTER]
    assert found.typed_config is not None
    unpacked = found.typed_config.unpack()
    assert isinstance(unpacked, jwt_authn.JwtAuthentication)
    return unpacked


def test_tokens_are_verified_before_the_decision_and_only_where_there_are_tenants() -> None:
    made = config(authentication={"jwt": REMOTE})
    assert names(made)[:2] == [JWT_FILTER, "envoy.filters.http.ext_proc"]
    nobody = made.model_copy(update={"tenants": ()})
    assert JWT_FILTER not in names(nobody)
    assert identity.jwks_clusters(nobody) == []
    assert JWT_FILTER not in names(config())


def test_a_token_must_be_the_issuers_and_end_and_what_is_not_valid_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(Issuer().key_set()))
    jwt = {"issuer": "https://issuer.example", "audiences": ["a", "b"], "jwks_file": str(file)}
    said = verifying(config(authentication={"jwt": jwt}))
    (provider,) = said.providers.values()
    assert (provider.issuer, provider.audiences) == ("https://issuer.example", ["a", "b"])
    assert provider.require_expiration
    assert provider.local_jwks is not None
    assert json.loads(provider.local_jwks.inline_string or "") == json.loads(file.read_text())
    (rule,) = said.rules
    assert rule.match is not None
    assert rule.match.prefix == "/"


def test_an_issuers_new_keys_make_a_new_listener(tmp_path: Path) -> None:
    file, listeners = tmp_path / "keys.json", []
    for kid in ("one", "two"):
        file.write_text(json.dumps(Issuer(kid=kid).key_set()))
        made = config(authentication={"jwt": {"issuer": "https://issuer.example", "jwks_file": str(file)}})
        (found,) = build.snapshot(made, []).of_type(LISTENER).values()
        assert f'"{kid}"'.encode() in found.body
        listeners.append(found.body)
    assert listeners[0] != listeners[1]


def test_keys_that_are_fetched_come_from_whom_the_url_names() -> None:
    made = config(authentication={"jwt": {**REMOTE, "jwks_ca": "/e/roots.pem"}})
    (cluster,) = identity.jwks_clusters(made)
    assert cluster.transport_socket is not None
    assert cluster.transport_socket.typed_config is not None
    context = cluster.transport_socket.typed_config.unpack()
    assert isinstance(context, tls.UpstreamTlsContext)
    assert context.sni == "issuer.example"
    assert context.common_tls_context is not None
    signed = context.common_tls_context.validation_context
    assert signed is not None
    assert signed.trusted_ca is not None
    assert signed.trusted_ca.filename == "/e/roots.pem"
    (name,) = signed.match_typed_subject_alt_names
    assert name.matcher is not None
    assert name.matcher.exact == "issuer.example"
    assert cluster.name in build.snapshot(made, []).of_type(CLUSTER)


@pytest.mark.parametrize("exchanges", [1, 2])
def test_what_envoy_knows_of_who_asks_is_sent_in_both_exchanges(exchanges: int) -> None:
    made = config(
        authentication={"jwt": REMOTE, "certificate": "uri_san"},
        control={"ext_proc_exchanges": exchanges},
        listener={"tls": {"certificate": "/c", "key": "/k", "client_ca": "/a", "read_by": "envoy"}},
    )
    (found,) = [one for one in filters.http_filters(made) if one.name == "envoy.filters.http.ext_proc"]
    assert found.typed_config is not None
    asked = found.typed_config.unpack()
    assert isinstance(asked, ext_proc.ExternalProcessor)
    assert asked.request_attributes[-2:] == [
        "metadata.filter_metadata['envoy.filters.http.jwt_authn']['payload']['sub']",
        "connection.uri_san_peer_certificate",
    ]


@pytest.mark.parametrize(
    ("more", "required", "asked"),
    [
        ({}, False, False),
        ({"client_ca": "/a"}, True, True),
        ({"client_ca": "/a", "client_certificate": "optional"}, False, True),
    ],
)
def test_clients_are_asked_for_a_certificate_as_configured(more: dict[str, str], required: bool, asked: bool) -> None:
    made = config(listener={"tls": {"certificate": "/c", "key": "/k", "read_by": "envoy", **more}})
    (chain,) = listener.client_listener(made).filter_chains
    assert chain.transport_socket is not None
    assert chain.transport_socket.typed_config is not None
    context = chain.transport_socket.typed_config.unpack()
    assert isinstance(context, tls.DownstreamTlsContext)
    assert context.require_client_certificate is required
    assert context.common_tls_context is not None
    assert (context.common_tls_context.validation_context_sds_secret_config is not None) == asked
    assert listener.client_listener(config()).filter_chains[0].transport_socket is None


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(), max_size=40))
def test_ones_own_filter_is_told_what_was_written(content: dict[str, Any]) -> None:
    own = {"name": "mine", "type": "envoy.extensions.filters.http.lua.v3.Lua", "config": content}
    made = Config.model_validate({"pools": POOLS, "listener": {"filters": [own]}}, strict=False)
    (built,) = own_filters.own_filters(made)
    assert built.name == "mine"
    assert built.typed_config is not None
    assert built.typed_config.type_url == own_filters.TYPED_STRUCT
    # Written as a list of two is: the first field is text, the second a mapping.
    said = _fields(built.typed_config.value)
    assert said[1] == b"type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
    assert struct_pb2.Struct.FromString(said[2]) == struct_pb2.Struct.FromString(bytes(Struct.from_dict(content)))


def _fields(data: bytes) -> dict[int, bytes]:
    """Return the fields of a message that has nothing but fields with a length."""
    fields, at = {}, 0
    while at < len(data):
        number, at = data[at] >> 3, at + 1
        length = shift = 0
        while True:
            length |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 0x80:
                break
        fields[number], at = data[at : at + length], at + length
    return fields
