"""The endpoint where the request takes the least time, its own and that of the requests already there.

``cost`` says how that is reckoned. Where two endpoints cost the same, chance decides.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.cost import Cost, costs
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng, ascending


class Picker:
    """Ranks by the total of ``cost``, then at random."""

    uses_prefix = True
    learns = True

    def rank(self, request: InferenceRequest, candidates: Sequence[EndpointView], rng: Rng) -> Sequence[EndpointView]:
        """Return the candidates, the least expensive first."""
        prompt, output = request.prompt.tokens, request.output_tokens or 0
        totals = [parts[0] for parts in costs(candidates, prompt, output)]
        return [candidates[place] for place in ascending(totals, rng)]

    def explain(self, request: InferenceRequest, candidates: Sequence[EndpointView]) -> dict[str, dict[str, float]]:
        """Return each candidate's cost in seconds: the total, the parts of it, and the expected time to first token."""
        prompt, output = request.prompt.tokens, request.output_tokens or 0
        found = [Cost(*parts) for parts in costs(candidates, prompt, output)]
        return {
            endpoint.address: {**one._asdict(), "ttft": one.ttft}
            for endpoint, one in zip(candidates, found, strict=True)
        }
