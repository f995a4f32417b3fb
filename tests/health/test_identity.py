"""Which node a certificate speaks for."""

import pytest

from tidegate.health.identity import nodes


@pytest.mark.parametrize(
    ("name", "node"),
    [
        (b"gpu-7", "gpu-7"),
        (b"gpu-7.example.com", "gpu-7.example.com"),
        (b"10.0.0.7", "10.0.0.7"),
        (b"spiffe://example.com/node/gpu-7", "gpu-7"),
        (b"spiffe://example.com/tidegate/agent/node/gpu-7", "gpu-7"),
        (b"spiffe://example.com/tidegate/agent/gpu-7", "gpu-7"),
    ],
)
def test_a_name_speaks_for_that_node_alone(name: bytes, node: str) -> None:
    assert nodes([name]) == {node}


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b"*.example.com",
        b"gpu-7\x00.evil.com",
        b"gpu-7\n",
        "gpu-é".encode(),
        b"spiffe://example.com/node/",
        b"spiffe://example.com/node/a/b",
        b"spiffe://example.com/nodes/gpu-7",
        b"https://example.com/node/gpu-7",
        b"x" * 300,
    ],
)
def test_what_is_no_exact_name_speaks_for_nobody(name: bytes) -> None:
    assert nodes([name]) == frozenset()


def test_a_certificate_may_bear_several_names() -> None:
    assert nodes([b"a", b"spiffe://d/node/b", b"*"]) == {"a", "b"}
