"""Leaves out endpoints that cannot be reached.

Envoy's ``override_host`` goes to whatever address it is given, ejected or not: naming only live ones is our part.

One that was never reached is left out after its first failed attempt. It loses nothing by that but requests, which
others take; and if it got them, a burst on a fleet that is half up would be retried beyond what Envoy's budget allows.
"""

from collections.abc import Sequence

from tidegate.fleet.health import NOT_THERE
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest


def keep(
    request: InferenceRequest,  # noqa: ARG001
    candidates: Sequence[EndpointView],
) -> Sequence[EndpointView]:
    """Return the candidates that are not known to be unreachable, and were reached if they were tried."""
    return [endpoint for endpoint in candidates if endpoint.reachability not in NOT_THERE]
