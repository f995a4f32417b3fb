"""The less loaded of two drawn at random, by requests for its weight.

The two choices of Mitzenmacher (2001): nearly as even as looking at all, and old figures mislead it less, because not
everybody runs to the one that looks best.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng, shuffled


class Picker:
    """Ranks at random, but for the first two, which it orders by (requests + 1) / weight, then by tokens / weight."""

    def rank(
        self,
        request: InferenceRequest,  # noqa: ARG002
        candidates: Sequence[EndpointView],
        rng: Rng,
    ) -> Sequence[EndpointView]:
        """Return the candidates: the less loaded of two, the other, and the rest as drawn."""
        order = shuffled(candidates, rng)
        if len(order) > 1 and load(order[1]) < load(order[0]):
            order[0], order[1] = order[1], order[0]
        return order


def load(endpoint: EndpointView) -> tuple[float, float]:
    """Return by what two endpoints are compared."""
    return (endpoint.requests + 1) / endpoint.weight, endpoint.tokens / endpoint.weight
