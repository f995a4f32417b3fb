"""From what is configured and what is known to what Envoys should have."""

from collections.abc import Sequence

from tidegate.config import Config
from tidegate.fleet.view import PoolView
from xds.endpoints import assignment, members
from xds.groups import Groups
from xds.resources import Told, by_group, default
from xds.snapshot import Resource, Snapshot


def groups(config: Config, pools: Sequence[PoolView]) -> Groups:
    """Return what each group of Envoys should have by ``config``, with the members of ``pools``.

    Cheap while ``config`` stays the same: only assignments whose members changed are built, and once for all groups.
    """
    assignments = [assignment(pool.name, members(pool)) for pool in pools]
    made: dict[int, Snapshot] = {}
    snapshots = {}
    for name, told in by_group(config).items():
        if id(told) not in made:
            made[id(told)] = _snapshot(told, assignments)
        snapshots[name] = made[id(told)]
    return Groups(snapshots, config.envoys.group_of)


def snapshot(config: Config, pools: Sequence[PoolView]) -> Snapshot:
    """Return what Envoys in no group should have."""
    return _snapshot(default(config), [assignment(pool.name, members(pool)) for pool in pools])


def _snapshot(told: Told, assignments: Sequence[Resource]) -> Snapshot:
    return Snapshot((*told.resources, *(one for one in assignments if one.name in told.pools)))
