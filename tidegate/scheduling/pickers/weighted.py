"""Any endpoint, with a chance in proportion to its weight."""

import math
from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng


class Picker:
    """Draws without replacement, each draw in proportion to the weights that are left.

    Sorting by ``log(u) / weight`` with u uniform does just that (Efraimidis and Spirakis, 2006).
    """

    def rank(
        self,
        request: InferenceRequest,  # noqa: ARG002
        candidates: Sequence[EndpointView],
        rng: Rng,
    ) -> Sequence[EndpointView]:
        """Return the candidates in an order drawn by weight."""
        return sorted(candidates, key=lambda endpoint: math.log(1.0 - rng.random()) / endpoint.weight, reverse=True)
