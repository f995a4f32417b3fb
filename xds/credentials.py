"""What says who asks: sent to the decision where there are tenants, and to no engine then."""

from envoy_data_plane.envoy.config.core import v3 as core

from tidegate.config import Config
from xds.names import DECISION_NAMESPACE

CREDENTIALS = ("authorization", "x-api-key")
RATE_LIMITS = tuple(
    f"x-ratelimit-{what}-{unit}" for unit in ("requests", "tokens") for what in ("limit", "remaining", "reset")
)
"""Response headers that a decision gives, in its metadata, under the same names."""


def of_callers(config: Config) -> tuple[str, ...]:
    """Return the headers that say who asks; none where nobody wants to know, and they are for the engine then."""
    if not config.tenants:
        return ()
    identity = config.authentication.identity_header
    return CREDENTIALS if identity is None else (*CREDENTIALS, identity)


def told(config: Config) -> list[core.HeaderValueOption]:
    """Return the headers that tell a client of its limits. One that a decision does not give is not added."""
    if not config.tenants:
        return []
    return [
        core.HeaderValueOption(
            header=core.HeaderValue(key=name, value=f"%DYNAMIC_METADATA({DECISION_NAMESPACE}:{name})%"),
            append_action=core.HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
        )
        for name in RATE_LIMITS
    ]
