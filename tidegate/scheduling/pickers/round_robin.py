"""One endpoint after the other; weights do not count."""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng


class Picker:
    """Goes on behind the endpoint that was named last, also when members come and go."""

    def __init__(self) -> None:
        self._last = ""

    def rank(
        self,
        request: InferenceRequest,  # noqa: ARG002
        candidates: Sequence[EndpointView],
        rng: Rng,  # noqa: ARG002
    ) -> Sequence[EndpointView]:
        """Return the candidates in the order of their addresses, beginning behind the last one named."""
        ring = sorted(candidates, key=lambda endpoint: endpoint.address)
        first = next((place for place, endpoint in enumerate(ring) if endpoint.address > self._last), 0)
        self._last = ring[first].address
        return ring[first:] + ring[:first]
