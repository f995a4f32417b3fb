"""One endpoint after the other; weights do not count."""

from bisect import bisect_right
from collections.abc import Sequence

from tidegate.fleet.endpoint import EndpointSpec
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng
from tidegate.scheduling.shortlist import CANDIDATES


class Picker:
    """Goes on behind the endpoint that was named last, also when members come and go."""

    by_turns = True

    def __init__(self) -> None:
        self._last = ""
        self._members: Sequence[EndpointSpec] = ()
        self._ring: list[tuple[str, int]] = []

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

    def shortlist(
        self,
        request: InferenceRequest,  # noqa: ARG002
        members: Sequence[EndpointSpec],
        rng: Rng,  # noqa: ARG002
    ) -> Sequence[int]:
        """Return where the next ones stand, in the order of their addresses."""
        if members is not self._members:
            self._members = members
            self._ring = sorted((member.address, place) for place, member in enumerate(members))
        first = bisect_right(self._ring, (self._last, len(members)))
        ring = self._ring[first : first + CANDIDATES]
        return [place for _, place in ring + self._ring[: CANDIDATES - len(ring)]]
