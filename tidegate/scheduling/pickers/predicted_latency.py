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

    uses_prefix = True

    def rank(self, request: InferenceRequest, candidates: Sequence[EndpointView], rng: Rng) -> Sequence[EndpointView]:
        """Return the candidates, the least expensive first."""
        prompt, output = request.prompt.tokens, request.output_tokens or 0
        return sorted(shuffled(candidates, rng), key=lambda endpoint: cost(endpoint, prompt, output).total)

    def explain(self, request: InferenceRequest, candidates: Sequence[EndpointView]) -> dict[str, dict[str, float]]:
        """Return the parts of each candidate's cost, in seconds, and the time to the first token among them."""
        prompt, output = request.prompt.tokens, request.output_tokens or 0
        costs = {endpoint.address: cost(endpoint, prompt, output) for endpoint in candidates}
        return {address: {**each._asdict(), "ttft": each.ttft} for address, each in costs.items()}
