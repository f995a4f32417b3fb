"""The endpoint with the fewest requests, for its weight."""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng

MOST_TURNS = 10_000
"""Endpoints of which it is remembered when they were picked last; of more, those that were picked of late."""


class Picker:
    """Ranks by (requests there + 1) / weight, then those first that were not picked for longest.

    Turns among equals keep what one process picks even by itself. Where several pick for one fleet and hear of each
    other late, as in a burst, that is what keeps the sum even: with lots, both would now and then fill one gap twice.
    The first turns are drawn by lot, or all processes would begin with the same endpoint.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._picked: dict[str, float] = {}

    def rank(
        self,
        request: InferenceRequest,  # noqa: ARG002
        candidates: Sequence[EndpointView],
        rng: Rng,
    ) -> Sequence[EndpointView]:
        """Return the candidates, the one with the fewest requests first."""
        picked, keys = self._picked, []
        for endpoint in candidates:
            turn = picked.get(endpoint.address)
            if turn is None:
                turn = picked[endpoint.address] = -rng.random()
            keys.append(((endpoint.requests + 1) / endpoint.weight, turn))
        ranked = [candidates[place] for place in sorted(range(len(keys)), key=keys.__getitem__)]
        self._turn += 1
        picked[ranked[0].address] = self._turn
        if len(picked) > MOST_TURNS:
            bound = self._turn - MOST_TURNS // 2
            self._picked = {address: turn for address, turn in picked.items() if turn > bound}
        return ranked
