"""Headers that steer gateways and engines, and that a client may therefore not set."""

from envoy_data_plane.envoy.config.common.mutation_rules import v3 as mutation_rules
from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.extensions.http.early_header_mutation.header_mutation import v3 as early
from envoy_data_plane.envoy.type.matcher import v3 as matcher

from xds.messages import extension
from xds.names import DEADLINE_HEADER

CONTROL_PREFIXES = (
    "x-gateway-",  # Gateway API Inference Extension
    "x-llm-d-",
    "x-prefiller-",
    "x-encoder-hosts-",
    "x-data-parallel-host-",
    "x-envoy-",
    "x-ai-eg-",  # Envoy AI Gateway
    "x-token-",
)
CONTROL_NAMES = (
    "x-forwarded-client-cert",
    "routing-strategy",  # this and the next two: AIBrix
    "target-pod",
    "user",
    "x-tenant-id",
    "x-priority",
    "x-session-node",
    "x-canary",
    DEADLINE_HEADER,
)
"""Their variants with an underscore never get here: such requests are rejected (``listener``)."""


def strip_control_headers(but: str | None = None) -> core.TypedExtensionConfig:
    """Return the mutation that takes them out before anything else, route and decision included, sees the request.

    ``but`` is the one in which a proxy in front says who asks, where one does.
    """
    matchers = [matcher.StringMatcher(prefix=prefix) for prefix in CONTROL_PREFIXES]
    return extension(
        "envoy.http.early_header_mutation.header_mutation",
        early.HeaderMutation(
            mutations=[
                *(
                    mutation_rules.HeaderMutation(
                        remove_on_match=mutation_rules.HeaderMutationRemoveOnMatch(key_matcher=key)
                    )
                    for key in matchers
                ),
                *(mutation_rules.HeaderMutation(remove=name) for name in CONTROL_NAMES if name != but),
            ]
        ),
    )
