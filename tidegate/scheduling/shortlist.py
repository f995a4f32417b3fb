"""Whom to look at in a large pool.

Looking at an endpoint costs about a microsecond; at ten thousand of them, more than the decision may take. So of a
large pool a few are drawn, and the best of these is picked: the best of 24 drawn at random is hardly worse than the
best of all (Mitzenmacher's power of two choices, and more of it), and decisions that are taken on equally old reports,
by this process and by others, do not all meet at one endpoint. Those that hold the beginning of the prompt are added,
because a draw would miss them.
"""

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tidegate.fleet.endpoint import EndpointSpec
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng

CANDIDATES = 24
"""How many endpoints are drawn; a pool of no more is looked at whole."""

WARM = 4
"""How many are added that hold the most of the prompt."""


@runtime_checkable
class Shortlisting(Protocol):
    """A picker that knows by itself whom to look at in a large pool."""

    def shortlist(self, request: InferenceRequest, members: Sequence[EndpointSpec], rng: Rng) -> Sequence[int]:
        """Return the places in ``members`` of those to look at: a few, each once."""
        ...


def drawn(size: int, rng: Rng) -> list[int]:
    """Return ``CANDIDATES`` places of ``size``, which are more, each once and each as likely.

    They lie on a circle, a drawn distance apart that has no factor in common with its size: two draws instead of one
    for each place, and still any two places are as likely to meet as any other two, or nearly.
    """
    step = 1 + int(rng.random() * (size - 1))
    while math.gcd(step, size) != 1:
        step += 1
    first = int(rng.random() * size)
    return [place % size for place in range(first, first + CANDIDATES * step, step)]
