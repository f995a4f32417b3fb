"""The session's home: 1 there, 0 elsewhere; 0.5 everywhere for a request without a session.

As the Go endpoint picker's ``session-affinity-scorer``, but the home follows from the session's name (``rendezvous``).
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling import rendezvous
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.scorers import NEUTRAL


def score(request: InferenceRequest, candidates: Sequence[EndpointView]) -> list[float]:
    """Return 1 for the home of the request's session."""
    if not request.session:
        return [NEUTRAL] * len(candidates)
    home = max(candidates, key=rendezvous.draw(request.session))
    return [float(endpoint is home) for endpoint in candidates]
