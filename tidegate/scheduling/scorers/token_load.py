"""Few tokens there: 1 - min(1, (tokens there + uncached tokens of this prompt) / 4,194,304).

As the Go endpoint picker's ``token-load-scorer``, with its threshold; tokens there are those in flight.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest

THRESHOLD_TOKENS = 4_194_304


def score(request: InferenceRequest, candidates: Sequence[EndpointView]) -> list[float]:
    """Return 1 for nothing to do, 0 for ``THRESHOLD_TOKENS`` or more."""
    prompt = request.prompt.tokens
    return [
        1.0 - min(1.0, (endpoint.tokens + max(0, prompt - endpoint.cached_tokens)) / THRESHOLD_TOKENS)
        for endpoint in candidates
    ]
