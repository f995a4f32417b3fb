"""The request's LoRA adapter at hand: 1 where it runs, 0.8 where there is room for it, 0.6 where it waits, else 0.

As the Go endpoint picker's ``lora-affinity-scorer``, room being fewer adapters running and waiting than fit beside one
another. A request without an adapter is at home everywhere.
"""

from collections.abc import Sequence

from tidegate.fleet.view import Adapters, EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.scorers import NEUTRAL

ROOM = 0.8
WAITS = 0.6


def score(request: InferenceRequest, candidates: Sequence[EndpointView]) -> list[float]:
    """Return how near the adapter is to each candidate."""
    return [affinity(request.adapter, endpoint.adapters) for endpoint in candidates]


def affinity(adapter: str, there: Adapters | None) -> float:
    """Return how near ``adapter`` is to an endpoint that has these; neutral where that is not known."""
    if not adapter:
        return 1.0
    if there is None:
        return NEUTRAL
    if adapter in there.running:
        return 1.0
    if there.most is None or len(there.running) + len(there.waiting) < there.most:
        return ROOM
    return WAITS if adapter in there.waiting else 0.0
