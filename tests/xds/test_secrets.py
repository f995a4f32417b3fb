"""Certificates as secrets: sent to who names them, before and after what names them, and changed alone."""

from pathlib import Path
from typing import Any

import pytest
from envoy_data_plane.envoy.config.cluster.v3 import Cluster
from envoy_data_plane.envoy.extensions.transport_sockets.tls import v3 as tls

from tests.authority import Authority
from tests.xds.fleets import config
from tests.xds.fleets import pool as fleet_pool
from tests.xds.wire import Wire
from tidegate import pem
from tidegate.config import Config
from tidegate.config_tls import PoolTls
from xds import build
from xds.clusters import pool_cluster
from xds.secrets import NO_MATERIAL, Material
from xds.snapshot import Reference, Resource, Snapshot
from xds.type_urls import CLUSTER, LISTENER, ORDER, ROUTE, SECRET

FILES: dict[str, Any] = {"certificate": "/e/tls.crt", "key": "/e/tls.key", "client_ca": "/e/ca.crt", "read_by": "envoy"}


def fleet(secret: str, named: str = "s") -> Snapshot:
    return Snapshot(
        [
            Resource(SECRET, named, f"secret {named} {secret}".encode()),
            Resource(LISTENER, "l", f"listener {named}".encode(), frozenset({Reference(SECRET, named)})),
            Resource(ROUTE, "r", b"routes"),
        ]
    )


@pytest.mark.parametrize("incremental", [True, False])
def test_a_renewed_certificate_is_sent_and_nothing_else(incremental: bool) -> None:
    wire = Wire(incremental)
    ask = wire.change if incremental else wire.ask
    ask(LISTENER)
    assert wire.pull(fleet("1")) == ["LDS l"]
    wire.acknowledge(LISTENER) if incremental else wire.ask(LISTENER)
    ask(SECRET, ["s"])
    assert wire.pull(fleet("1")) == ["SDS s"]
    wire.acknowledge(SECRET) if incremental else wire.ask(SECRET, ["s"])
    assert wire.pull(fleet("2")) == ["SDS s"]


def test_secrets_are_sent_to_nobody_who_did_not_ask_for_them_by_name() -> None:
    wire = Wire(incremental=True)
    wire.change(SECRET)
    assert wire.pull(fleet("1")) == []
    wire.change(SECRET, ["another"])
    assert wire.pull(fleet("1")) == ["SDS -another"]


def test_a_secret_is_taken_away_only_when_nothing_names_it_any_more() -> None:
    wire = Wire(incremental=True)
    wire.change(LISTENER)
    wire.change(SECRET, ["s", "t"])
    before = Snapshot([*fleet("1").of_type(SECRET).values(), *fleet("1").of_type(LISTENER).values()])
    assert wire.pull(before) == ["SDS s -t", "LDS l"]
    wire.acknowledge(SECRET)
    wire.acknowledge(LISTENER)
    after = fleet("1", named="t")
    assert wire.pull(after) == ["SDS t", "LDS l"]
    wire.acknowledge(SECRET)
    wire.acknowledge(LISTENER)
    assert wire.pull(after) == ["SDS -s"]


def test_what_envoy_refuses_of_a_secret_is_parked_and_the_next_one_is_sent() -> None:
    wire = Wire(incremental=True)
    wire.change(SECRET, ["s"])
    wire.pull(fleet("1"))
    wire.acknowledge(SECRET)
    assert wire.pull(fleet("bad")) == ["SDS s"]
    wire.refuse(SECRET)
    assert wire.pull(fleet("bad")) == []
    assert wire.pull(fleet("2")) == ["SDS s"]


def built(of: Config, material: Material = NO_MATERIAL) -> Snapshot:
    return build.snapshot(of, [], material)


def secrets(of: Config, material: Material = NO_MATERIAL) -> dict[str, tls.Secret]:
    found = built(of, material).of_type(SECRET)
    return {name: tls.Secret.parse(resource.body) for name, resource in found.items()}


def test_envoy_reads_its_own_files_again_when_their_folder_changes() -> None:
    found = secrets(config("a", listener={"tls": FILES}))
    pair, trusted = (
        found["listener_certificate:envoy:/e/tls.crt"].tls_certificate,
        found["listener_client_ca:envoy:/e/ca.crt"].validation_context,
    )
    assert pair is not None
    assert trusted is not None
    assert pair.private_key is not None
    assert pair.watched_directory is not None
    assert trusted.watched_directory is not None
    assert (pair.private_key.filename, pair.private_key.inline_bytes) == ("/e/tls.key", None)
    assert {pair.watched_directory.path, trusted.watched_directory.path} == {"/e"}


def test_what_tidegate_reads_is_sent_and_printed_nowhere(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = map(str, authority.issue("edge"))
    of = config("a", listener={"tls": {"certificate": certificate, "key": key}})
    name = f"listener_certificate:{certificate}"
    material = Material({name: pem.identity(certificate, key)}, {})
    pair = secrets(of, material)[name].tls_certificate
    assert pair is not None
    assert pair.private_key is not None
    assert pair.private_key.inline_bytes == material.identities[name].key
    resource = build.snapshot(of, [], material).of_type(SECRET)[name]
    line = pair.private_key.inline_bytes.decode().splitlines()[1]
    assert line not in repr((resource, material, of))
    assert line in resource.body.decode("latin-1")


def test_a_key_in_the_file_of_certificates_is_nowhere_but_where_keys_are(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("edge")
    certificate.write_bytes(key.read_bytes() + certificate.read_bytes() + key.read_bytes())
    with authority.certificate.open("ab") as file:
        file.write(key.read_bytes())
    settings = {"certificate": str(certificate), "key": str(key), "client_ca": str(authority.certificate)}
    of = config("a", listener={"tls": settings})
    names = f"listener_certificate:{certificate}", f"listener_client_ca:{authority.certificate}"
    material = Material(
        {names[0]: pem.identity(str(certificate), str(key))}, {names[1]: pem.authorities(settings["client_ca"])}
    )
    assert {*secrets(of, material)} == {*names}
    pair = secrets(of, material)[names[0]].tls_certificate
    assert pair is not None
    assert pair.private_key is not None
    assert pair.private_key.inline_bytes is not None
    bodies = [resource.body for kind in ORDER for resource in built(of, material).of_type(kind).values()]
    for body in bodies:
        assert b"PRIVATE KEY" not in body.replace(pair.private_key.inline_bytes, b"")
        assert key.read_bytes().splitlines()[1] not in body.replace(pair.private_key.inline_bytes, b"")


def test_a_pool_is_gone_to_with_what_it_accepts_by_each_kind_of_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = map(str, authority.issue("mine"))
    names = ["engine.internal", "10.0.0.7", "spiffe://d/engine"]
    settings = PoolTls.model_validate(
        {"ca": str(authority.certificate), "server_name": "sni.internal", "san": tuple(names)}
        | {"certificate": certificate, "key": key}
    )
    of = config("a", "b")
    of = of.model_copy(update={"pools": (of.pools[0].model_copy(update={"tls": settings}), of.pools[1])})
    socket = pool_cluster(of.pools[0], 60.0).transport_socket
    assert socket is not None
    assert socket.typed_config is not None
    context = socket.typed_config.unpack()
    assert isinstance(context, tls.UpstreamTlsContext)
    assert context.sni == "sni.internal"
    common = context.common_tls_context
    assert common is not None
    assert [one.name for one in common.tls_certificate_sds_secret_configs] == ["pool_a_certificate"]
    combined = common.combined_validation_context
    assert combined is not None
    assert combined.validation_context_sds_secret_config is not None
    assert combined.validation_context_sds_secret_config.name == "pool_a_ca"
    assert combined.default_validation_context is not None
    kinds = tls.SubjectAltNameMatcherSanType
    matchers = combined.default_validation_context.match_typed_subject_alt_names
    assert [one.san_type for one in matchers] == [kinds.DNS, kinds.IP_ADDRESS, kinds.URI]
    assert [one.matcher.exact for one in matchers if one.matcher] == names
    clusters = build.snapshot(of, []).of_type(CLUSTER)
    assert Reference(SECRET, "pool_a_certificate") in clusters["a"].references
    assert Cluster.parse(clusters["b"].body).transport_socket is None


def test_a_group_of_envoys_is_sent_its_own_keys_and_no_others() -> None:
    own = {**FILES, "certificate": "/g/tls.crt", "key": "/g/tls.key", "client_ca": None}
    edge = {"name": "edge", "match": {"cluster": "edge"}, "listener": {"tls": own}}
    of = config("a", listener={"tls": FILES}, envoys={"groups": (edge,)})
    snapshots = build.groups(of, [fleet_pool("a", {})]).snapshots
    assert {name: {*one.of_type(SECRET)} for name, one in snapshots.items()} == {
        "edge": {"listener_certificate:envoy:/g/tls.crt"},
        "default": {"listener_certificate:envoy:/e/tls.crt", "listener_client_ca:envoy:/e/ca.crt"},
    }
