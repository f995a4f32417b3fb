"""The endpoint whose KV cache has the most of the prompt, unless it bears more than its share.

Loads are bounded as in consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018): whoever bears
more than a quarter above the average, and would not be idle otherwise, comes after the others. A prompt that nobody
knows goes to the fewest tokens, and its like will follow it there.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng, shuffled

OVERLOAD = 1.25
"""How many times the average load of the candidates one of them may bear."""

SLACK_REQUESTS = 2.0
"""Requests, for the weight, up to which nobody counts as overloaded: averages of a nearly idle pool say nothing."""


class Picker:
    """Ranks the overloaded last, then by cached tokens of the prompt, the most first, then by tokens / weight."""

    uses_prefix = True

    def rank(self, request: InferenceRequest, candidates: Sequence[EndpointView], rng: Rng) -> Sequence[EndpointView]:
        """Return the candidates, those that know the most of the prompt first."""
        most = _most(candidates)
        prompt = request.prompt.tokens

        def key(endpoint: EndpointView) -> tuple[bool, int, float]:
            weight = endpoint.weight
            cached = endpoint.cached_tokens
            return endpoint.requests / weight > most, -cached, (endpoint.tokens + prompt - cached) / weight

        return sorted(shuffled(candidates, rng), key=key)

    def explain(
        self,
        request: InferenceRequest,  # noqa: ARG002
        candidates: Sequence[EndpointView],
    ) -> dict[str, dict[str, float]]:
        """Return each candidate's cached tokens, its requests for its weight, and the most it may have of those."""
        most = _most(candidates)
        return {
            endpoint.address: {
                "cached_tokens": float(endpoint.cached_tokens),
                "requests_per_weight": endpoint.requests / endpoint.weight,
                "most_requests_per_weight": most,
            }
            for endpoint in candidates
        }


def _most(candidates: Sequence[EndpointView]) -> float:
    requests = sum(endpoint.requests for endpoint in candidates)
    weights = sum(endpoint.weight for endpoint in candidates)
    return OVERLOAD * requests / weights + SLACK_REQUESTS
