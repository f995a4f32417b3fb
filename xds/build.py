"""From what is configured and what is known to what Envoy should have."""

from collections.abc import Sequence

from tidegate.config import Config
from tidegate.fleet.view import PoolView
from xds.endpoints import assignment, members
from xds.resources import resources
from xds.snapshot import Snapshot


def snapshot(config: Config, pools: Sequence[PoolView]) -> Snapshot:
    """Return the resources for ``config`` with the members of ``pools``.

    Cheap while ``config`` stays the same: only assignments whose members changed are built.
    """
    return Snapshot((*resources(config), *(assignment(pool.name, members(pool)) for pool in pools)))
