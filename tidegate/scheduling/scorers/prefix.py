"""Much of the prompt in the KV cache: cached tokens / prompt tokens.

As the Go endpoint picker's ``prefix-cache-scorer``, but a match ends at its first gap.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest


def score(request: InferenceRequest, candidates: Sequence[EndpointView]) -> list[float]:
    """Return 1 where the whole prompt is cached, 0 where nothing is."""
    prompt = max(1, request.prompt.tokens)
    return [min(1.0, endpoint.cached_tokens / prompt) for endpoint in candidates]
