"""What Envoy has to know of requests that wait for room: how patient it is to be, and what clients are told."""

from envoy_data_plane.envoy.config.core import v3 as core

from tidegate.config import Config
from tidegate.config_queue import longest_wait
from xds.names import DECISION_NAMESPACE

PATIENCE_SECONDS = 5.0
"""How much longer than any request may wait Envoy is patient at the most."""

TOLD = ("x-tidegate-queue-seconds", "x-tidegate-queue-estimate-seconds")
"""Response headers that a decision gives, in its metadata, under the same names."""


def wanted(config: Config) -> bool:
    """Return whether requests wait anywhere."""
    return any(pool.queue.enabled for pool in config.pools)


def most_patience(config: Config) -> float:
    """Return for how many seconds Envoy may be asked to wait for a decision."""
    return longest_wait(pool.queue for pool in config.pools) + PATIENCE_SECONDS


def told(config: Config) -> list[core.HeaderValueOption]:
    """Return the headers that tell a client how long its request waited. One that did not wait gets none."""
    return [
        core.HeaderValueOption(
            header=core.HeaderValue(key=name, value=f"%DYNAMIC_METADATA({DECISION_NAMESPACE}:{name})%"),
            append_action=core.HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
        )
        for name in (TOLD if wanted(config) else ())
    ]
