"""The endpoint with the most free KV cache.

Free is what neither the engine says it uses nor we have sent there since. An endpoint that does not say how large its
cache is, is taken for one as large as the average of those that do; where nobody says, the fewest tokens win.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng, shuffled


class Picker:
    """Ranks by free tokens of KV cache, cached ones of this prompt included, then by tokens / weight."""

    by_turns = True

    def rank(
        self,
        request: InferenceRequest,  # noqa: ARG002
        candidates: Sequence[EndpointView],
        rng: Rng,
    ) -> Sequence[EndpointView]:
        """Return the candidates, the one with the most room first."""
        usual = _usual_capacity(candidates)
        return sorted(
            shuffled(candidates, rng),
            key=lambda endpoint: (-_room(endpoint, usual), endpoint.tokens / endpoint.weight),
        )

    def explain(
        self,
        request: InferenceRequest,  # noqa: ARG002
        candidates: Sequence[EndpointView],
    ) -> dict[str, dict[str, float]]:
        """Return each candidate's room in tokens."""
        usual = _usual_capacity(candidates)
        return {endpoint.address: {"room_tokens": _room(endpoint, usual)} for endpoint in candidates}


def _usual_capacity(candidates: Sequence[EndpointView]) -> float:
    known = [endpoint.kv_capacity_tokens for endpoint in candidates if endpoint.kv_capacity_tokens is not None]
    return sum(known) / len(known) if known else 0.0


def _room(endpoint: EndpointView, usual: float) -> float:
    free = endpoint.kv_free_tokens
    if free is None:
        free = usual - max(endpoint.tokens, (endpoint.kv_usage or 0.0) * usual)
    return free + endpoint.cached_tokens
