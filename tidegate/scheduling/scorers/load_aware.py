"""A short queue by a fixed measure: 0.5 * (1 - min(waiting, 128) / 128).

As the Go endpoint picker's ``load-aware-scorer``: at most 0.5, so that beside others it is only a lean.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.scorers import averaged

LONGEST = 128


def score(
    request: InferenceRequest,  # noqa: ARG001
    candidates: Sequence[EndpointView],
) -> list[float]:
    """Return 0.5 for an empty queue, 0 for one of ``LONGEST`` requests or more."""
    return averaged(
        [endpoint.waiting for endpoint in candidates], lambda waiting: 0.5 * (1.0 - min(waiting, LONGEST) / LONGEST)
    )
