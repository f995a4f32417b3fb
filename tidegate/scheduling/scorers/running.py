"""Few requests in the engine's batch: (most - running) / (most - fewest), the most and fewest among the candidates.

As the Go endpoint picker's ``running-requests-size-scorer``: 1 for all where they are equal.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.scorers import fewest_first


def score(
    request: InferenceRequest,  # noqa: ARG001
    candidates: Sequence[EndpointView],
) -> list[float]:
    """Return 1 for the smallest batch, 0 for the largest."""
    return fewest_first([endpoint.running for endpoint in candidates])
