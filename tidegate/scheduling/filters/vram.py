"""Leaves out endpoints whose VRAM has no room for the request, by what their GPU agents report.

Nearly full VRAM is unfit for a large prompt and fit for a small one: there has to be room for the prompt, less what is
cached of it, and the answer expected. What an endpoint does not say is no reason against it.
"""

from collections.abc import Sequence

from tidegate.fleet.endpoint import PoolSpec
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest


def idle(pool: PoolSpec) -> bool:
    """Return whether VRAM bounds nothing in ``pool``."""
    return pool.vram == "ignore"


def keep(request: InferenceRequest, candidates: Sequence[EndpointView]) -> Sequence[EndpointView]:
    """Return the candidates that have room for it."""
    needed = request.prompt.tokens + (request.output_tokens or 0)
    return [
        endpoint
        for endpoint in candidates
        if (room := endpoint.vram_room_tokens) is None or room >= needed - endpoint.cached_tokens
    ]
