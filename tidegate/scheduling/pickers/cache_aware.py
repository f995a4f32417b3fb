"""As sglang-router: the longest known prefix while loads are even, else the fewest requests.

Loads are uneven when the most and the fewest requests in flight are more than 64 apart and the most are more than 1.5
times the fewest; then the fewest win. Else whoever knows the most of the prompt wins, if that is more than 0.3 of it.
Else the fewest win again. (The thresholds are those of its command line. Its tree of characters is the prefix index
here, and ties are drawn by lot, where it always takes the same endpoint.)
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng, shuffled

CACHE_THRESHOLD = 0.3
BALANCE_ABS_THRESHOLD = 64
BALANCE_REL_THRESHOLD = 1.5


class Picker:
    """Ranks by cached tokens or by requests in flight, whichever the thresholds say, then by the other."""

    by_turns = True
    uses_prefix = True

    def rank(self, request: InferenceRequest, candidates: Sequence[EndpointView], rng: Rng) -> Sequence[EndpointView]:
        """Return the candidates, the best by the measure of the moment first."""
        order = shuffled(candidates, rng)
        if _follows_the_cache(request, candidates):
            return sorted(order, key=lambda endpoint: (-endpoint.cached_tokens, endpoint.inflight_requests))
        return sorted(order, key=lambda endpoint: endpoint.inflight_requests)

    def explain(self, request: InferenceRequest, candidates: Sequence[EndpointView]) -> dict[str, dict[str, float]]:
        """Return what the thresholds are applied to, and whether the cache decided."""
        follows = float(_follows_the_cache(request, candidates))
        return {
            endpoint.address: {
                "matched": endpoint.cached_tokens / max(1, request.prompt.tokens),
                "inflight_requests": float(endpoint.inflight_requests),
                "cache_decides": follows,
            }
            for endpoint in candidates
        }


def _follows_the_cache(request: InferenceRequest, candidates: Sequence[EndpointView]) -> bool:
    loads = [endpoint.inflight_requests for endpoint in candidates]
    fewest, most = min(loads), max(loads)
    if most - fewest > BALANCE_ABS_THRESHOLD and most > BALANCE_REL_THRESHOLD * fewest:
        return False
    matched = max(endpoint.cached_tokens for endpoint in candidates)
    return matched > CACHE_THRESHOLD * request.prompt.tokens
