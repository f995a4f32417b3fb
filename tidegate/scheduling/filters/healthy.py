"""Leaves out endpoints that are ejected or drain.

Envoy's ``override_host`` goes to whatever address it is given as long as it knows it, and anywhere else once it does
not: naming only those that may be used is our part. Nobody passes over this; how many are ejected at once is bounded.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest

HARD = True
HEEDS_HEALTH = True


def keep(
    request: InferenceRequest,  # noqa: ARG001
    candidates: Sequence[EndpointView],
) -> Sequence[EndpointView]:
    """Return the candidates that get something."""
    return [endpoint for endpoint in candidates if not endpoint.ejected]
