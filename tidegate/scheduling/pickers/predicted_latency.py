"""The endpoint where the request takes the least time, its own and that of the requests already there.

``cost`` says how that is reckoned. Where two endpoints cost the same, chance decides.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.cost import cost
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng, shuffled


class Picker:
    """Ranks by ``cost(...).total``, then at random."""

    def rank(self, request: InferenceRequest, candidates: Sequence[EndpointView], rng: Rng) -> Sequence[EndpointView]:
        """Return the candidates, the least expensive first."""
        prompt, output = request.prompt.tokens, request.output_tokens or 0
        return sorted(shuffled(candidates, rng), key=lambda endpoint: cost(endpoint, prompt, output).total)
