"""A number of tokens, and how it came about."""

import enum
from typing import NamedTuple


class CountSource(enum.Enum):
    """How a count came about; from the surest to the least sure."""

    EXACT = "exact"
    """Every text was encoded. What a chat template adds is an estimate all the same."""
    SAMPLED = "sampled"
    """Part of the text was encoded, the rest inferred from it."""
    BYTES = "bytes"
    """Inferred from the number of bytes alone."""


class TokenCount(NamedTuple):
    """A number of tokens with its provenance."""

    tokens: int
    source: CountSource
