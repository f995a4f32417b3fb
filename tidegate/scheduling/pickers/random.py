"""Any endpoint, uniformly; weights do not count."""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng, shuffled


class Picker:
    """Ranks at random."""

    by_turns = True

    def rank(
        self,
        request: InferenceRequest,  # noqa: ARG002
        candidates: Sequence[EndpointView],
        rng: Rng,
    ) -> Sequence[EndpointView]:
        """Return the candidates in an order drawn uniformly."""
        return shuffled(candidates, rng)
