"""The fuse: a limit on all requests together, kept by each Envoy alone, before anybody is asked about them.

What tenants may use is decided elsewhere, by tokens; this only keeps a flood from reaching what decides.
"""

from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.extensions.filters.http.local_ratelimit import v3 as local_ratelimit
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager import v3 as hcm
from envoy_data_plane.envoy.type import v3 as envoy_type
from envoy_data_plane.google.protobuf import Any

from tidegate.config_sections import Listener
from xds.messages import seconds

NAME = "envoy.filters.http.local_ratelimit"

TICKS = 10
"""How often a second the bucket is filled, so that what is refused is spread over it."""


def of(listener: Listener) -> list[hcm.HttpFilter]:
    """Return the filter, where there is a limit: as many requests a second, and no more than that at once."""
    limit = listener.max_requests_per_second
    if limit is None:
        return []
    always = core.RuntimeFractionalPercent(default_value=envoy_type.FractionalPercent(numerator=100))
    ticks = min(TICKS, limit)
    bucket = envoy_type.TokenBucket(
        max_tokens=limit, tokens_per_fill=limit // ticks, fill_interval=seconds(limit // ticks / limit)
    )
    fuse = local_ratelimit.LocalRateLimit(
        stat_prefix="tidegate_fuse",
        status=envoy_type.HttpStatus(code=envoy_type.StatusCode.TooManyRequests),
        token_bucket=bucket,
        filter_enabled=always,
        filter_enforced=always,
    )
    return [hcm.HttpFilter(name=NAME, typed_config=Any.pack(fuse))]
