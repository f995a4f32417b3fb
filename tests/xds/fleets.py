"""Configurations and pool views for tests."""

from collections.abc import Mapping
from typing import Any

from tidegate.config import Config
from tidegate.fleet.health import Reachability
from tidegate.fleet.view import EndpointView, PoolView


def config(*pools: str, **sections: Mapping[str, Any]) -> Config:
    """Return a configuration with one endpoint in each of ``pools``, and other sections as given."""
    declared = tuple(
        {"name": name, "models": (name,), "endpoints": ({"address": f"127.0.0.1:{9000 + number}"},)}
        for number, name in enumerate(pools)
    )
    return Config.model_validate({"pools": declared, **sections})


def pool(name: str, members: Mapping[str, int], ejected: tuple[str, ...] = ()) -> PoolView:
    """Return a pool with weighted members."""
    unknown = (0, 0, 0.0, 0.0, None, None, None, None)
    return PoolView(
        name,
        "vllm",
        ("*",),
        tuple(
            EndpointView(address, weight, Reachability.UNKNOWN, address in ejected, *unknown)
            for address, weight in members.items()
        ),
    )
