"""Leaves out endpoints that cannot take the request into their batch now.

It fits where the KV cache has room for the prompt (less what is cached of it) and the answer expected, and the batch
has room for one more. What an endpoint does not say is no reason against it.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest


def keep(request: InferenceRequest, candidates: Sequence[EndpointView]) -> Sequence[EndpointView]:
    """Return the candidates that it fits into."""
    needed = request.prompt.tokens + (request.output_tokens or 0)
    kept = []
    for endpoint in candidates:
        most, capacity = endpoint.max_running, endpoint.kv_capacity_tokens
        if most is not None and endpoint.requests >= most:
            continue
        if capacity is not None:
            # As kv_free_tokens, written out and without calls: this is a tenth of a decision's cost.
            usage, least = endpoint.kv_usage, needed - endpoint.cached_tokens
            if capacity - endpoint.tokens < least or (usage is not None and capacity - usage * capacity < least):
                continue
        kept.append(endpoint)
    return kept
