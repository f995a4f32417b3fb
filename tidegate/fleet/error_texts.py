"""What an engine's error says of the engine, told by words that stand in it.

Envoy looks for them in errors on their way to the client, and whoever reads answers does; what is passed on of the text
is one of few words.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final


class Said(enum.Enum):
    """What an error says of its engine."""

    ENGINE_DEAD = "engine_dead"
    OUT_OF_MEMORY = "out_of_memory"
    BUSY = "busy"
    OTHER = "other"


TEXTS: Final[Mapping[Said, tuple[str, ...]]] = MappingProxyType(
    {
        Said.ENGINE_DEAD: (
            "enginecore encountered an issue",  # vLLM, its core gone (measured with 0.32)
            "cannot schedule new futures after shutdown",  # vLLM while it shuts down: 500, and /health 200 (measured)
            "enginedeaderror",  # vLLM
            "asyncengine is dead",  # vLLM before its first version
            "background loop has errored",  # likewise
            "scheduler is dead",  # SGLang
        ),
        Said.OUT_OF_MEMORY: (
            "out of memory",  # PyTorch ("CUDA out of memory"), CUDA ("out of memory"), JAX
            "outofmemoryerror",  # torch.OutOfMemoryError
            "cuda_error_out_of_memory",
            "failed to allocate",  # llama.cpp, TensorRT-LLM
        ),
        Said.BUSY: (
            "currently busy",  # vLLM with its queue full (measured)
            "queue is full",  # SGLang
            "no slot available",  # llama.cpp
            "loading model",  # llama.cpp while it starts
            "overloaded",  # TGI, Anthropic's form
            "too many requests",
            "rate limit",
        ),
    }
)
"""Texts in lower case, the graver ones first: the first that stands in an error says what it is."""

MAX_CHARACTERS: Final = 4096
"""How far an error is looked through."""


def said(text: str) -> Said:
    """Return what the error ``text`` says of its engine."""
    text = text[:MAX_CHARACTERS].lower()
    return next((one for one, texts in TEXTS.items() if any(known in text for known in texts)), Said.OTHER)
