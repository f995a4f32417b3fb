"""How fast and how large a simulated engine is: one profile per GPU, for a model of 8 billion parameters in bfloat16.

The numbers are a roofline for Llama 3.1 8B (8.03 billion weights of 2 bytes, 16.06 GB; per token 2 x 8.03e9 floating
point operations and 2 x 32 layers x 8 heads x 128 x 2 bytes = 131,072 bytes of KV cache), scaled to what engines reach
in practice:

============  ===================  =====================  ========================================================
figure        source               reached in practice    h100 (SXM, 80 GB), a100 (SXM, 80 GB), rtx4090 (24 GB)
============  ===================  =====================  ========================================================
decode step   memory bandwidth     about 3/4              3.35, 2.04, 1.01 TB/s: 6.5, 10.5 and 21 ms for the weights
prefill       bfloat16, dense      40 to 60 %             989, 312, 165 TFLOP/s: 24,000, 12,000 and 6,000 tokens/s
KV cache      0.92 of the memory   less weights, buffers  about 55, 55 and 4.6 GB
batch limits  vLLM's own defaults                         1024 and 8192; 256 and 2048 for the two others
============  ===================  =====================  ========================================================

So an H100 is about twice an A100, and three to four times an RTX 4090, which also holds a twelfth of the tokens. The
share reached is engineering judgement, not a measurement: the profiles are there to differ as real GPUs do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

BLOCK_SIZE = 16
"""Tokens in a block of KV cache (vLLM's default on GPUs)."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The speed and the limits of one engine.

    Attributes:
        name: the GPU.
        prefill_tokens_per_second: prompt tokens computed in a second when nothing else runs.
        decode_step_seconds: what every step costs, however small: reading the weights once.
        sequence_seconds: what each generating request adds to a step: sampling and bookkeeping.
        context_token_seconds: what each token of context of a generating request adds: reading its KV cache.
        num_gpu_blocks: blocks of KV cache; one of them is the null block that vLLM never hands out.
        max_num_seqs: requests in the batch at most.
        max_num_batched_tokens: tokens computed in one step at most; longer prompts are prefilled in chunks.
    """

    name: str
    prefill_tokens_per_second: float
    decode_step_seconds: float
    sequence_seconds: float
    context_token_seconds: float
    num_gpu_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int

    def __post_init__(self) -> None:
        rates = (self.prefill_tokens_per_second, self.decode_step_seconds)
        extras = (self.sequence_seconds, self.context_token_seconds)
        if min(rates) <= 0 or min(extras) < 0:
            raise ValueError("rates must be positive")
        if self.num_gpu_blocks < 2 or self.max_num_seqs < 1 or self.max_num_batched_tokens < 1:
            raise ValueError("an engine needs two blocks, a batch of one and a token a step at least")

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache can hold."""
        return (self.num_gpu_blocks - 1) * BLOCK_SIZE

    def step_seconds(self, prefill_tokens: int, sequences: int, context_tokens: int) -> float:
        """Return how long a step takes.

        Args:
            prefill_tokens: prompt tokens computed in it.
            sequences: requests that get a token by decoding.
            context_tokens: the sum of their contexts, in tokens.
        """
        return (
            self.decode_step_seconds
            + prefill_tokens / self.prefill_tokens_per_second
            + sequences * self.sequence_seconds
            + context_tokens * self.context_token_seconds
        )


_ALL = (
    Profile("h100", 24_000.0, 0.0065, 20e-6, 52e-9, 26_000, 1024, 8192),
    Profile("a100", 12_000.0, 0.0105, 30e-6, 86e-9, 26_000, 256, 2048),
    Profile("rtx4090", 6_000.0, 0.0210, 40e-6, 173e-9, 2_200, 256, 2048),
)
PROFILES: Mapping[str, Profile] = MappingProxyType({profile.name: profile for profile in _ALL})
"""The profiles by name."""
