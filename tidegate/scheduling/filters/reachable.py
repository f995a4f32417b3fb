"""Leaves out endpoints that cannot be reached.

Envoy's ``override_host`` goes to whatever address it is given, ejected or not: naming only live ones is our part.
"""

from collections.abc import Sequence

from tidegate.fleet.health import Reachability
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest


def keep(
    request: InferenceRequest,  # noqa: ARG001
    candidates: Sequence[EndpointView],
) -> Sequence[EndpointView]:
    """Return the candidates that are not known to be unreachable."""
    unreachable = Reachability.UNREACHABLE
    return [endpoint for endpoint in candidates if endpoint.reachability is not unreachable]
