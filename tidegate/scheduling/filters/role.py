"""Leaves out endpoints that only prefill: where prefill and decode are taken apart, whoever decodes is asked."""

from collections.abc import Sequence

from tidegate.fleet.endpoint import PoolSpec
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest

HARD = True

PREFILL = "prefill"


def idle(pool: PoolSpec) -> bool:
    """Return whether it keeps every endpoint of ``pool``, whatever is asked."""
    return all(endpoint.role != PREFILL for endpoint in pool.endpoints)


def keep(
    request: InferenceRequest,  # noqa: ARG001
    candidates: Sequence[EndpointView],
) -> Sequence[EndpointView]:
    """Return the candidates that answer requests themselves."""
    return [endpoint for endpoint in candidates if endpoint.role != PREFILL]
