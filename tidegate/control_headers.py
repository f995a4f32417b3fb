"""Headers that steer gateways and engines, and that a client may therefore not set: they are taken out at the edge."""

from typing import Final

CONTROL_PREFIXES: Final = (
    "x-gateway-",  # Gateway API Inference Extension
    "x-llm-d-",
    "x-prefiller-",
    "x-encoder-hosts-",
    "x-data-parallel-host-",
    "x-envoy-",
    "x-ai-eg-",  # Envoy AI Gateway
    "x-token-",
)
CONTROL_NAMES: Final = (
    "x-forwarded-client-cert",
    "routing-strategy",  # this and the next two: AIBrix
    "target-pod",
    "user",
    "x-tenant-id",
    "x-priority",
    "x-session-node",
    "x-canary",
    "grpc-timeout",  # in which a decision tells Envoy how long the whole request may take
)
"""Their variants with an underscore never get there: such requests are rejected (``xds.listener``)."""
