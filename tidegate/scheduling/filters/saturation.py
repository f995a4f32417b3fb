"""Leaves out endpoints that are busy beyond what they should be.

The measure is that of the Go endpoint picker's utilization detector: an endpoint is saturated when more than 6 requests
wait in its engine, or more than 96 % of its KV cache is in use (its thresholds of 5 and 80 %, with the headroom of a
fifth that its filter adds).
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest

MOST_WAITING = 6
MOST_KV_USAGE = 0.96


def keep(
    request: InferenceRequest,  # noqa: ARG001
    candidates: Sequence[EndpointView],
) -> Sequence[EndpointView]:
    """Return the candidates that are not known to be saturated."""
    return [endpoint for endpoint in candidates if not saturated(endpoint)]


def saturated(endpoint: EndpointView) -> bool:
    """Return whether the engine said so when it was asked last."""
    waiting, kv_usage = endpoint.waiting, endpoint.kv_usage
    return (waiting is not None and waiting > MOST_WAITING) or (kv_usage is not None and kv_usage > MOST_KV_USAGE)
