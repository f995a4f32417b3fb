"""The endpoint with the fewest requests, for its weight."""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng, shuffled


class Picker:
    """Ranks by (requests there + 1) / weight, then at random."""

    def rank(
        self,
        request: InferenceRequest,  # noqa: ARG002
        candidates: Sequence[EndpointView],
        rng: Rng,
    ) -> Sequence[EndpointView]:
        """Return the candidates, the one with the fewest requests first."""
        return sorted(shuffled(candidates, rng), key=lambda endpoint: (endpoint.requests + 1) / endpoint.weight)
