"""What labels say of an endpoint."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.discovery.contract import Found
from tidegate.discovery.labels import found, gpu_class
from tidegate.fleet.endpoint import EndpointSpec


def test_labels_say_role_engine_gpu_weight_batch_and_models() -> None:
    labels = {"t/role": "prefill", "t/engine": "sglang", "t/gpu": "NVIDIA-H100-80GB-HBM3", "t/weight": "5"}
    labels |= {"t/max-running": "64", "t/models": "llama-3, ,sql", "other/role": "decode"}
    spec = EndpointSpec("10.0.0.1:1", 5, "prefill", ("llama-3", "sql"), 64, "h100")
    assert found("10.0.0.1:1", labels, "t/") == Found(spec, "sglang")


def test_labels_say_the_node_and_its_gpus() -> None:
    labels = {"node": "gpu-7.internal", "gpus": "GPU-1, GPU-2,,no uuid"}
    spec = EndpointSpec("10.0.0.1:1", node="gpu-7.internal", gpus=("GPU-1", "GPU-2"))
    assert found("10.0.0.1:1", labels, "").endpoint == spec
    assert found("10.0.0.1:1", {}, "", node="gpu-8").endpoint.node == "gpu-8"
    assert found("10.0.0.1:1", labels, "", node="gpu-8").endpoint.node == "gpu-7.internal"
    assert found("10.0.0.1:1", {"node": "not a node"}, "").endpoint.node == ""


def test_a_label_that_means_nothing_says_nothing() -> None:
    labels = {"role": "cook", "engine": "steam", "gpu": "abacus", "weight": "-1", "max-running": "many"}
    assert found("10.0.0.1:1", labels, "", weight=3) == Found(EndpointSpec("10.0.0.1:1", 3))


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA-H100-80GB-HBM3", "h100"),
        ("NVIDIA-H100-PCIe", "h100-pcie"),
        ("NVIDIA-A100-SXM4-80GB", "a100"),
        ("NVIDIA-A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA-GeForce-RTX-4090", "rtx4090"),
        ("NVIDIA-L40S", "l40s"),
        ("NVIDIA-L40", ""),
        ("NVIDIA-GH200-480GB", "gh200"),
        ("Tesla-T4", "t4"),
        ("AMD_Instinct_MI300X_OAM", "mi300x"),
        ("a10", "a10"),
        ("", ""),
    ],
)
def test_products_are_of_a_class(product: str, name: str) -> None:
    assert gpu_class(product) == name


@pytest.mark.parametrize(
    ("value", "drains"), [("true", True), (" True ", True), ("false", False), ("", False), ("x", False)]
)
def test_a_label_has_an_endpoint_drain(value: str, drains: bool) -> None:
    assert found("10.0.0.1:1", {"drain": value}, "").endpoint.drain is drains


@given(st.dictionaries(st.sampled_from(["role", "engine", "gpu", "weight", "models", "max-running"]), st.text()))
def test_any_labels_give_an_endpoint(labels: dict[str, str]) -> None:
    spec = found("10.0.0.1:1", labels, "").endpoint
    assert 1 <= spec.weight <= 1000
    assert spec.max_running is None or spec.max_running >= 1
