"""The same endpoint for all requests of a session, as long as it is there.

A session's home is found by rendezvous hashing: when it goes, the session moves once, to its next home, and nobody else
does; when it is back, so is the session. A request without a session goes where the fewest tokens are.
"""

from collections import OrderedDict
from collections.abc import Sequence

from tidegate.fleet.endpoint import EndpointSpec
from tidegate.fleet.view import EndpointView
from tidegate.scheduling import rendezvous
from tidegate.scheduling.pickers import least_tokens
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng
from tidegate.scheduling.shortlist import drawn

HOMES = 5
"""How many endpoints of a large pool are looked at for a session: its home, and where it goes while that is down."""

REMEMBERED = 10_000
"""Sessions whose homes in a large pool are remembered, so as not to hash all its endpoints each time."""


class Picker:
    """Ranks by what the endpoints draw for the session; without one, as ``least_tokens`` does."""

    def __init__(self) -> None:
        self._otherwise = least_tokens.Picker()
        self._members: Sequence[EndpointSpec] = ()
        self._homes: OrderedDict[str, list[int]] = OrderedDict()

    def rank(self, request: InferenceRequest, candidates: Sequence[EndpointView], rng: Rng) -> Sequence[EndpointView]:
        """Return the candidates, the session's home first, then where it would go if that went."""
        if not request.session:
            return self._otherwise.rank(request, candidates, rng)
        return sorted(candidates, key=rendezvous.draw(request.session), reverse=True)

    def shortlist(self, request: InferenceRequest, members: Sequence[EndpointSpec], rng: Rng) -> Sequence[int]:
        """Return where the session's first homes stand."""
        session = request.session
        if not session:
            return drawn(len(members), rng)
        if members is not self._members:
            self._members = members
            self._homes.clear()
        homes = self._homes.get(session)
        if homes is None:
            numbers = list(map(rendezvous.draw(session), members))
            homes = sorted(range(len(members)), key=numbers.__getitem__, reverse=True)[:HOMES]
            self._homes[session] = homes
            if len(self._homes) > REMEMBERED:
                self._homes.popitem(last=False)
        else:
            self._homes.move_to_end(session)
        return homes
