"""A number of tokens, and how it came about."""

import enum
from typing import NamedTuple


class CountSource(enum.Enum):
    """How a count came about."""

    EXACT = "exact"
    """Every text was encoded. What a chat template adds is an estimate all the same."""
    SAMPLED = "sampled"
    """Part of the text was encoded, the rest inferred from it."""
    LEARNED = "learned"
    """Exact or sampled, and then corrected by what engines reported of earlier requests."""
    BYTES = "bytes"
    """Inferred from the number of bytes alone."""


class TokenCount(NamedTuple):
    """A number of tokens with its provenance.

    Attributes:
        tokens: how many.
        source: how they were counted.
        uncorrected: how many before any correction, where the engine's own count of the same prompt teaches the next
            one; ``None`` where it would teach nothing: token ids are certain, and images or bytes a rough estimate.
    """

    tokens: int
    source: CountSource
    uncorrected: int | None = None
