"""Much free KV cache: 1 - the share in use, as the engine last said.

As the Go endpoint picker's ``kv-cache-utilization-scorer``.
"""

from collections.abc import Sequence

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.scorers import averaged


def score(
    request: InferenceRequest,  # noqa: ARG001
    candidates: Sequence[EndpointView],
) -> list[float]:
    """Return 1 for an empty cache, 0 for a full one."""
    return averaged([endpoint.kv_usage for endpoint in candidates], lambda usage: 1.0 - min(1.0, usage))
