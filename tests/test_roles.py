"""What a certificate says that its bearer is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.roles import Peer, Role, peer

OURS = "fleet.example"


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("spiffe://fleet.example/tidegate/envoy", Peer(Role.ENVOY, "")),
        ("spiffe://fleet.example/tidegate/envoy/edge-1", Peer(Role.ENVOY, "edge-1")),
        ("spiffe://fleet.example/tidegate/agent/gpu-7", Peer(Role.AGENT, "gpu-7")),
        ("spiffe://fleet.example/tidegate/agent/node/gpu-7", Peer(Role.AGENT, "gpu-7")),
        ("spiffe://fleet.example/tidegate/agent", None),
        ("spiffe://fleet.example/tidegate/envoy/", None),
        ("spiffe://fleet.example/tidegate/envoy/a/b", None),
        ("spiffe://fleet.example/tidegate/envoys", None),
        ("spiffe://fleet.example/x/tidegate/envoy", None),
        ("spiffe://fleet.example/tidegate/envoy\0", None),
        ("spiffe://fleet.example/tidegate/envoy\n", None),
        ("spiffe://fleet.example.other/tidegate/envoy", None),
        ("spiffe://other/tidegate/envoy", None),
        ("https://fleet.example/tidegate/envoy", None),
        ("fleet.example", None),
    ],
)
def test_a_role_is_a_name_under_our_trust_domain(uri: str, expected: Peer | None) -> None:
    assert peer([uri], OURS) == expected


def test_a_certificate_with_several_names_or_none_has_no_role() -> None:
    envoy = "spiffe://fleet.example/tidegate/envoy"
    assert peer([], OURS) is None
    assert peer([envoy, "spiffe://fleet.example/tidegate/agent/a"], OURS) is None


@given(st.text())
def test_whatever_a_certificate_says_is_no_role_by_accident(text: str) -> None:
    assert peer([text], OURS) is None
    found = peer([f"spiffe://fleet.example/tidegate/agent/{text}"], OURS)
    assert found is None or text.endswith(found.name)
