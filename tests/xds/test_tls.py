"""What Envoy is told about TLS, in the bootstrap and in the clusters that lead to the control plane."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from envoy_data_plane.envoy.config.cluster.v3 import Cluster
from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import (
    SubjectAltNameMatcherSanType,
    UpstreamTlsContext,
)

from tests.authority import Authority, tls
from tests.envoy_process import validate
from tests.xds.fleets import config, pool
from tidegate.config import Config
from xds import bootstrap, build
from xds.type_urls import CLUSTER


def secured(folder: Path, **envoy: str) -> Config:
    files: dict[str, Any] = tls(Authority(folder, "ours"), Authority(folder, "theirs"))
    files["envoy"] |= envoy
    return config("a", control={"tls": files})


def contexts(of: Config) -> dict[str, UpstreamTlsContext | None]:
    resources = build.snapshot(of, [pool("a", {})]).of_type(CLUSTER)
    found: dict[str, UpstreamTlsContext | None] = {}
    for name, resource in resources.items():
        socket = Cluster.parse(resource.body).transport_socket
        packed = None if socket is None or socket.typed_config is None else socket.typed_config.unpack()
        assert packed is None or isinstance(packed, UpstreamTlsContext)
        found[name] = packed
    return found


def test_the_control_planes_clusters_are_secured_and_no_other(tmp_path: Path) -> None:
    of = secured(tmp_path)
    found = contexts(of)
    assert {name for name, context in found.items() if context} == {
        "tidegate_ext_proc",
        "tidegate_access_log",
        "tidegate_hold",
    }
    context = found["tidegate_ext_proc"]
    assert context is not None
    assert context.common_tls_context is not None
    assert context.common_tls_context.alpn_protocols == ["h2"]


def test_without_tls_no_cluster_is_secured() -> None:
    assert not any(contexts(config("a")).values())
    told = yaml.safe_load(bootstrap.render(config("a"), bootstrap.template()))
    assert told["static_resources"]["clusters"][0]["transport_socket"] is None


@pytest.mark.parametrize(
    ("server_name", "kind", "sni"),
    [("tidegate.local", SubjectAltNameMatcherSanType.DNS, "tidegate.local"), ("10.0.0.9", "IP_ADDRESS", "")],
)
def test_the_server_is_known_by_its_name(tmp_path: Path, server_name: str, kind: Any, sni: str) -> None:
    context = contexts(secured(tmp_path, server_name=server_name))["tidegate_access_log"]
    assert context is not None
    assert context.common_tls_context is not None
    combined = context.common_tls_context.combined_validation_context
    assert combined is not None
    assert combined.default_validation_context is not None
    (name,) = combined.default_validation_context.match_typed_subject_alt_names
    assert name.matcher is not None
    wanted = SubjectAltNameMatcherSanType[kind] if isinstance(kind, str) else kind
    assert (name.san_type, name.matcher.exact, context.sni) == (wanted, server_name, sni)


async def test_a_real_envoy_accepts_a_bootstrap_with_tls(tmp_path: Path) -> None:
    for number, envoy in enumerate(({}, {"server_name": "tidegate.local"})):
        status, said = await validate(bootstrap.render(secured(tmp_path / str(number), **envoy), bootstrap.template()))
        assert status == 0, said
