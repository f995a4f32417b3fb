"""How many bytes the KV cache takes for one token, by the model's name, for who configures nothing.

Two tensors (keys and values), times layers, KV heads and head size, times 2 bytes (float16 or bfloat16), from each
model's own ``config.json``; DeepSeek's latent attention keeps 2 * (512 + 64) bytes for each of 61 layers instead.
"""

import re
from collections.abc import Iterable

from tidegate.fleet.gpu import KV_BYTES_PER_TOKEN


def _bytes(layers: int, kv_heads: int, head_size: int = 128) -> int:
    return 2 * layers * kv_heads * head_size * 2


_MODELS = (
    (r"llama-?3(\.\d)?-405b", _bytes(126, 8)),
    (r"llama-?3(\.\d)?-70b", _bytes(80, 8)),
    (r"llama-?3(\.\d)?-8b", _bytes(32, 8)),
    (r"llama-?3\.2-3b", _bytes(28, 8)),
    (r"llama-?3\.2-1b", _bytes(16, 8, 64)),
    (r"qwen2(\.5)?-72b", _bytes(80, 8)),
    (r"qwen2\.5-32b", _bytes(64, 8)),
    (r"qwen2\.5-14b", _bytes(48, 8)),
    (r"qwen2(\.5)?-7b", _bytes(28, 4)),
    (r"qwen3-32b", _bytes(64, 8)),
    (r"qwen3-14b", _bytes(40, 8)),
    (r"qwen3-8b", _bytes(36, 8)),
    (r"mixtral-8x22b", _bytes(56, 8)),
    (r"mixtral-8x7b", _bytes(32, 8)),
    (r"mistral-7b", _bytes(32, 8)),
    (r"deepseek-(v3|r1)(?!.*distill)", 61 * (512 + 64) * 2),
)
_KNOWN = tuple((re.compile(rf"(?<![a-z0-9]){pattern}(?![a-z0-9])"), size) for pattern, size in _MODELS)


def expected(models: Iterable[str]) -> int:
    """Return the bytes for one token of the first of ``models`` that is known; else those of the model of ``gpu``."""
    for model in models:
        name = model.lower().replace("_", "-").replace("meta-llama", "llama")
        for pattern, size in _KNOWN:
            if pattern.search(name):
                return size
    return KV_BYTES_PER_TOKEN
