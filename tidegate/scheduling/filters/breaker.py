"""Leaves out endpoints whose breaker is open, or half open with the one request there that may try it.

Where that leaves nobody the fault is probably not theirs alone, and all of them are asked: the rule of every filter.
"""

from collections.abc import Sequence

from tidegate.fleet.breaker import Circuit
from tidegate.fleet.endpoint import PoolSpec
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest

HEEDS_HEALTH = True


def idle(pool: PoolSpec) -> bool:
    """Return whether the endpoints of ``pool`` have no breakers."""
    return pool.breaker is None


def keep(
    request: InferenceRequest,  # noqa: ARG001
    candidates: Sequence[EndpointView],
) -> Sequence[EndpointView]:
    """Return the candidates that may be sent a request."""
    most = Circuit.HALF_OPEN
    return [endpoint for endpoint in candidates if endpoint.circuit <= most]
