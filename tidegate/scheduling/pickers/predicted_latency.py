"""The endpoint where the request takes the least time, its own and that of the requests already there.

``cost`` says how that is reckoned. Where two endpoints cost the same, chance decides.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.cost import cost, parts
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng, shuffled


class Picker:
    """Ranks by the total of ``cost``, then at random."""

    uses_prefix = True
    learns = True

    def rank(self, request: InferenceRequest, candidates: Sequence[EndpointView], rng: Rng) -> Sequence[EndpointView]:
        """Return the candidates, the least expensive first."""
        prompt, output = request.prompt.tokens, request.output_tokens or 0
        order = shuffled(candidates, rng)
        totals = [parts(endpoint, prompt, output)[0] for endpoint in order]
        return [order[place] for place in sorted(range(len(order)), key=totals.__getitem__)]

    def explain(self, request: InferenceRequest, candidates: Sequence[EndpointView]) -> dict[str, dict[str, float]]:
        """Return each candidate's cost in seconds: the total, the parts of it, and the expected time to first token."""
        prompt, output = request.prompt.tokens, request.output_tokens or 0
        costs = {endpoint.address: cost(endpoint, prompt, output) for endpoint in candidates}
        return {address: {**one._asdict(), "ttft": one.ttft} for address, one in costs.items()}
