"""What to expect of an engine by its GPU, until its own requests have shown more.

A roofline for one GPU that serves a model of 8 billion parameters in bfloat16 with grouped-query attention (Llama 3.1
8B: 16.06 GB of weights, 131,072 bytes of KV cache for each token): a decode step reads the weights and the KV cache of
the batch from memory, a prompt token costs 2 floating-point operations for each weight. Engines reach about three
quarters of a GPU's bandwidth and half of its dense bfloat16 peak (float16 where it has no bfloat16). Bandwidth, peak
and memory are from the vendors' data sheets.

A prior only has to be right in its proportions: another model, several GPUs for one engine or quantised weights scale
all of them, and a few requests teach the scale.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

WEIGHTS_BYTES = 16.06e9
KV_BYTES_PER_TOKEN = 131_072
FLOPS_PER_TOKEN = 16.06e9
"""The model that priors are for."""

BANDWIDTH_REACHED, PEAK_REACHED, MEMORY_GIVEN = 0.75, 0.5, 0.92
"""Shares of a data sheet's figures that engines reach, and of the memory that vLLM takes by default."""

ACTIVATIONS_BYTES = 2e9
SEQUENCE_SECONDS = 30e-6
"""What sampling and bookkeeping add to a step for each request in the batch (vLLM; an order of magnitude)."""

MIN_KV_TOKENS = 4096


class Pace(NamedTuple):
    """How fast an engine works and what it can hold: a model of its steps, as continuous batching makes them.

    A step that decodes for ``n`` requests with ``k`` tokens of context in all and prefills ``p`` prompt tokens takes
    ``step_seconds + n * sequence_seconds + k * context_seconds + p * prefill_seconds``.

    Attributes:
        prefill_seconds: for one prompt token.
        step_seconds: for a step, however small: reading the weights.
        sequence_seconds: for each request in the batch.
        context_seconds: for each token of context in the batch.
        step_tokens: prompt tokens prefilled in one step at most.
        max_batch: requests in the batch at most.
        kv_tokens: tokens that the KV cache can hold.
    """

    prefill_seconds: float
    step_seconds: float
    sequence_seconds: float
    context_seconds: float
    step_tokens: float
    max_batch: float
    kv_tokens: float

    def step(self, requests: float, context: float) -> float:
        """Return how many seconds a step takes that decodes for ``requests`` with ``context`` tokens between them."""
        return self.step_seconds + requests * self.sequence_seconds + context * self.context_seconds

    def stretched(self, by: float) -> "Pace":
        """Return the pace of one that takes ``by`` times as long for everything."""
        return self._replace(
            prefill_seconds=self.prefill_seconds * by,
            step_seconds=self.step_seconds * by,
            sequence_seconds=self.sequence_seconds * by,
            context_seconds=self.context_seconds * by,
        )

    def prompt_token(self, step: float) -> float:
        """Return how many seconds a prompt token takes while steps without prefill take ``step`` seconds."""
        return self.prefill_seconds + step / self.step_tokens


def _pace(terabytes_per_second: float, teraflops: float, gigabytes: float) -> Pace:
    bandwidth = terabytes_per_second * 1e12 * BANDWIDTH_REACHED
    kv = (gigabytes * 1e9 * MEMORY_GIVEN - WEIGHTS_BYTES - ACTIVATIONS_BYTES) / KV_BYTES_PER_TOKEN
    large = gigabytes >= 75 and teraflops >= 700  # where vLLM's defaults are 1024 requests and 8192 tokens a step
    return Pace(
        prefill_seconds=FLOPS_PER_TOKEN / (teraflops * 1e12 * PEAK_REACHED),
        step_seconds=WEIGHTS_BYTES / bandwidth,
        sequence_seconds=SEQUENCE_SECONDS,
        context_seconds=KV_BYTES_PER_TOKEN / bandwidth,
        step_tokens=8192 if large else 2048,
        max_batch=1024 if large else 256,
        kv_tokens=max(MIN_KV_TOKENS, kv),
    )


PRIORS: Mapping[str, Pace] = MappingProxyType(
    {
        "a10": _pace(0.60, 125, 24),
        "a100": _pace(2.04, 312, 80),
        "a100-40gb": _pace(1.56, 312, 40),
        "a10g": _pace(0.60, 70, 24),
        "b200": _pace(8.0, 2250, 180),
        "gh200": _pace(4.0, 989, 96),
        "h100": _pace(3.35, 989, 80),
        "h100-nvl": _pace(3.9, 835, 94),
        "h100-pcie": _pace(2.0, 756, 80),
        "h200": _pace(4.8, 989, 141),
        "l4": _pace(0.30, 121, 24),
        "l40s": _pace(0.864, 362, 48),
        "mi300x": _pace(5.3, 1307, 192),
        "rtx3090": _pace(0.936, 71, 24),
        "rtx4090": _pace(1.01, 165, 24),
        "rtx5090": _pace(1.79, 210, 32),
        "rtx6000-ada": _pace(0.96, 364, 48),
        "t4": _pace(0.32, 65, 16),
        "v100": _pace(0.90, 125, 32),
    }
)
"""By the names that the configuration takes. The form with the most memory where the name does not say."""

UNKNOWN_GPU = "a100"
"""What an endpoint is taken for that does not say its GPU: the middle of the field, soon corrected by what it does."""


def prior(gpu: str) -> Pace:
    """Return what to expect of ``gpu``; an unknown name, as ``""`` is, gets the middle of the field."""
    return PRIORS.get(gpu) or PRIORS[UNKNOWN_GPU]
