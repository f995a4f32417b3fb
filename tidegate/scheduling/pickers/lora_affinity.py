"""An endpoint that has the request's LoRA adapter loaded, or room for it; among these, the one with the fewest tokens.

What an engine names is a hint, and late: requests that wait for other adapters may go unnamed. So an adapter also
counts as loaded where we sent its last requests.
"""

from collections import OrderedDict
from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.pickers import least_tokens
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng
from tidegate.scheduling.scorers import lora_affinity

REMEMBERED = 4096
"""The most endpoints whose last adapters are remembered; the one that got none for longest goes first."""

UNNAMED = 4
"""The last adapters sent to an endpoint that count as loaded where it does not say how many fit beside one another."""


class Picker:
    """Ranks by affinity (see the scorer ``lora_affinity``), the highest first, then as ``least_tokens`` does."""

    def __init__(self) -> None:
        self._by_tokens = least_tokens.Picker()
        self._sent: dict[str, OrderedDict[str, None]] = {}

    def rank(self, request: InferenceRequest, candidates: Sequence[EndpointView], rng: Rng) -> Sequence[EndpointView]:
        """Return the candidates, those that have the adapter first."""
        order = self._by_tokens.rank(request, candidates, rng)
        if not request.adapter:
            return order
        order = sorted(order, key=lambda endpoint: -self._affinity(request.adapter, endpoint))
        self._remember(request.adapter, order[0])
        return order

    def explain(self, request: InferenceRequest, candidates: Sequence[EndpointView]) -> dict[str, dict[str, float]]:
        """Return each candidate's affinity."""
        return {
            endpoint.address: {"affinity": self._affinity(request.adapter, endpoint) if request.adapter else 1.0}
            for endpoint in candidates
        }

    def _affinity(self, adapter: str, endpoint: EndpointView) -> float:
        if adapter in self._sent.get(endpoint.address, ()):
            return 1.0
        return lora_affinity.affinity(adapter, endpoint.adapters)

    def _remember(self, adapter: str, endpoint: EndpointView) -> None:
        there = endpoint.adapters
        most = UNNAMED if there is None or there.most is None else int(there.most)
        sent = self._sent.pop(endpoint.address, OrderedDict())
        sent[adapter] = None
        sent.move_to_end(adapter)
        while len(sent) > max(1, most):
            sent.popitem(last=False)
        self._sent[endpoint.address] = sent
        if len(self._sent) > REMEMBERED:
            del self._sent[next(iter(self._sent))]
