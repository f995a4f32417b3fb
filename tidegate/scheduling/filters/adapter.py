"""Leaves out endpoints that have no room for the LoRA adapter.

An engine loads an adapter when it is asked to, and has room for a few beside one another; a request for one more waits
until those of another adapter are done.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest


def keep(request: InferenceRequest, candidates: Sequence[EndpointView]) -> Sequence[EndpointView]:
    """Return the candidates that have the adapter or room for it, or do not say."""
    adapter = request.adapter
    return [endpoint for endpoint in candidates if has_room(endpoint, adapter)] if adapter else candidates


def has_room(endpoint: EndpointView, adapter: str) -> bool:
    """Return whether ``adapter`` is there or would fit beside those that are there or wait."""
    there = endpoint.adapters
    if there is None or there.most is None or adapter in there.running:
        return True
    return len(there.running | there.waiting | {adapter}) <= there.most
