"""Leaves out endpoints that do not serve the model.

The endpoints of a pool serve the same models, but for those that name their own.
"""

from collections.abc import Sequence

from tidegate.fleet.endpoint import PoolSpec
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest

HARD = True


def idle(pool: PoolSpec) -> bool:
    """Return whether it keeps every endpoint of ``pool``, whatever is asked."""
    return not any(endpoint.models for endpoint in pool.endpoints)


def keep(request: InferenceRequest, candidates: Sequence[EndpointView]) -> Sequence[EndpointView]:
    """Return the candidates that name ``request.model``, or no model."""
    model = request.model
    return [endpoint for endpoint in candidates if not endpoint.models or model in endpoint.models]
