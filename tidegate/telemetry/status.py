"""The fleet as JSON: what the admin page ``/status`` says, and ``tidegate status`` prints."""

import math
from collections.abc import Mapping, Sequence

from tidegate.fleet.view import EndpointView, PoolView

JsonObject = Mapping[str, object]


def describe(
    views: Sequence[PoolView],
    *,
    version: str,
    config_file: str | None,
    uptime_seconds: float,
    reservations: int,
    workers: Sequence[JsonObject] = (),
    kv_events: Sequence[JsonObject] = (),
    sharing: JsonObject | None = None,
    discovery: Sequence[JsonObject] = (),
) -> JsonObject:
    """Return the status page.

    Args:
        views: the pools now.
        version: Tidegate's own.
        config_file: where the configuration came from; ``None`` when from no file.
        uptime_seconds: since the control plane started.
        reservations: requests that hold a place anywhere.
        workers: the processes that decide, where there are several.
        kv_events: how it stands with the engines that tell what they cache.
        sharing: how it stands with what limits are shared through, where they are shared.
        discovery: how it stands with the sources of endpoints.
    """
    return {
        "version": version,
        "config_file": config_file,
        "uptime_seconds": round(uptime_seconds, 3),
        "inflight_reservations": reservations,
        "workers": list(workers),
        "kv_events": list(kv_events),
        "sharing": sharing,
        "discovery": list(discovery),
        "pools": [
            {
                "name": pool.name,
                "engine": pool.engine,
                "models": list(pool.models),
                "endpoints": [_endpoint(endpoint) for endpoint in pool.endpoints],
            }
            for pool in views
        ],
    }


def _endpoint(view: EndpointView) -> JsonObject:
    fields = {
        **view._asdict(),
        "reachability": view.reachability.value,
        "health": view.health.value,
        "models": list(view.models),
        "pace": view.pace._asdict(),
    }
    del fields["cached_tokens"]  # speaks of one request
    if view.adapters is not None:
        fields["adapters"] = {
            "running": sorted(view.adapters.running),
            "waiting": sorted(view.adapters.waiting),
            "most": view.adapters.most,
        }
    return {key: _sayable(value) for key, value in fields.items()}


def _sayable(value: object) -> object:
    """Return ``value``, or ``None`` for a number that JSON has no word for."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
