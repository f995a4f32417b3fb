"""How many bytes a token's KV cache takes, by the model's name."""

import pytest

from tidegate.fleet.gpu import KV_BYTES_PER_TOKEN
from tidegate.fleet.kv_bytes import expected


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 131_072),
        ("meta-llama/Meta-Llama-3-70B", 327_680),
        ("llama3.1-70b", 327_680),
        ("Qwen/Qwen2.5-7B-Instruct", 57_344),
        ("qwen3_32b", 262_144),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 131_072),
        ("deepseek-ai/DeepSeek-V3", 70_272),
    ],
)
def test_a_known_model_is_known_by_its_name(model: str, size: int) -> None:
    assert expected([model]) == size


@pytest.mark.parametrize("model", ["*", "", "my-model", "llama-3.1-700b", "deepseek-r1-distill-qwen-7b"])
def test_any_other_is_taken_for_the_model_of_the_priors(model: str) -> None:
    assert expected([model]) == KV_BYTES_PER_TOKEN


def test_the_first_that_is_known_counts() -> None:
    assert expected(["*", "llama-3.1-70b", "llama-3.1-8b"]) == 327_680
    assert expected([]) == KV_BYTES_PER_TOKEN
