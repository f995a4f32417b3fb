"""The endpoint with the fewest tokens in its care, for its weight.

A 100k-token prompt and "hello" are one request each; what an engine works through, and what fills its KV cache, is
tokens. The request at hand counts too, so that a long prompt weighs its size against the weights.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng, shuffled


class Picker:
    """Ranks by (tokens there + prompt tokens of this request) / weight, then by requests / weight, then at random."""

    def rank(self, request: InferenceRequest, candidates: Sequence[EndpointView], rng: Rng) -> Sequence[EndpointView]:
        """Return the candidates, the least loaded by tokens first."""
        prompt = request.prompt.tokens

        def load(endpoint: EndpointView) -> tuple[float, float]:
            return (endpoint.tokens + prompt) / endpoint.weight, endpoint.requests / endpoint.weight

        return sorted(shuffled(candidates, rng), key=load)
