"""Few requests waiting in the engine: (most - waiting) / (most - fewest), the most and fewest among the candidates.

As the Go endpoint picker's ``queue-scorer``: 1 for all where they are equal. What was sent since the last report does
not count here; ``active_requests`` and ``token_load`` count it.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.scorers import fewest_first


def score(
    request: InferenceRequest,  # noqa: ARG001
    candidates: Sequence[EndpointView],
) -> list[float]:
    """Return 1 for the shortest queue, 0 for the longest."""
    return fewest_first([endpoint.waiting for endpoint in candidates])
