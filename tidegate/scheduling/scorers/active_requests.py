"""Few requests there, for the weight: 1 at the fewest, 0 at the most, what was sent since the last report included.

Like the Go endpoint picker's ``active-request-scorer``, which counts only its own.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.scorers import fewest_first


def score(
    request: InferenceRequest,  # noqa: ARG001
    candidates: Sequence[EndpointView],
) -> list[float]:
    """Return 1 for the fewest requests by weight, 0 for the most."""
    return fewest_first([endpoint.requests / endpoint.weight for endpoint in candidates])
