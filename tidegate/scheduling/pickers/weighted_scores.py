"""The highest weighted sum of scores, as the Go endpoint picker: queue 2, KV cache 2, prefix 3.

The weights can be others, and of other scorers, by the key ``scorers``. The sum is not divided by the weights, and
equal sums are drawn by lot, as there.
"""

from collections.abc import Mapping, Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling import scorers
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng, shuffled

WEIGHTS: Mapping[str, float] = {"queue": 2.0, "kv_usage": 2.0, "prefix": 3.0}


class Picker:
    """Ranks by the sum of weight * score, the highest first, then at random."""

    by_turns = True

    def __init__(self) -> None:
        self.weights = WEIGHTS

    @property
    def uses_prefix(self) -> bool:
        """Whether a scorer that counts looks at what is cached of a prompt."""
        return any(self.weights.get(name) for name in ("prefix", "token_load"))

    def rank(self, request: InferenceRequest, candidates: Sequence[EndpointView], rng: Rng) -> Sequence[EndpointView]:
        """Return the candidates, the highest sum first."""
        order = shuffled(candidates, rng)
        sums = [0.0] * len(order)
        for name, weight in self.weights.items():
            for place, score in enumerate(scorers.find(name)(request, order)):
                sums[place] += weight * score
        ranking = sorted(range(len(order)), key=sums.__getitem__, reverse=True)
        return [order[place] for place in ranking]

    def explain(self, request: InferenceRequest, candidates: Sequence[EndpointView]) -> dict[str, dict[str, float]]:
        """Return each candidate's weighted scores, by scorer, and their sum."""
        parts: dict[str, dict[str, float]] = {endpoint.address: {} for endpoint in candidates}
        for name, weight in self.weights.items():
            for endpoint, score in zip(candidates, scorers.find(name)(request, candidates), strict=True):
                parts[endpoint.address][name] = weight * score
        return {address: {**figures, "sum": sum(figures.values())} for address, figures in parts.items()}
