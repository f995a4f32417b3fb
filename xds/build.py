"""From what is configured and what is known to what Envoys should have."""

from collections.abc import Sequence

from tidegate.config import Config
from tidegate.fleet.view import PoolView
from xds.endpoints import assignment, members
from xds.groups import Groups
from xds.resources import Told, by_group, default
from xds.secrets import NO_MATERIAL, Material, secrets
from xds.snapshot import Resource, Snapshot


def groups(config: Config, pools: Sequence[PoolView], material: Material = NO_MATERIAL) -> Groups:
    """Return what each group of Envoys should have by ``config``, with the members of ``pools``.

    Of ``material`` each has as its secrets what it names, and nobody else's keys.

    Cheap while ``config`` stays the same: only assignments whose members changed are built, and once for all groups.
    """
    assignments = [assignment(pool.name, members(pool)) for pool in pools]
    keyed = secrets(config, material)
    made: dict[int, Snapshot] = {}
    snapshots = {}
    for name, told in by_group(config).items():
        if id(told) not in made:
            made[id(told)] = _snapshot(told, assignments, keyed)
        snapshots[name] = made[id(told)]
    return Groups(snapshots, config.envoys.group_of)


def snapshot(config: Config, pools: Sequence[PoolView], material: Material = NO_MATERIAL) -> Snapshot:
    """Return what Envoys in no group should have."""
    assignments = [assignment(pool.name, members(pool)) for pool in pools]
    return _snapshot(default(config), assignments, secrets(config, material))


def _snapshot(told: Told, assignments: Sequence[Resource], keyed: Sequence[Resource]) -> Snapshot:
    own = (one for one in keyed if one.name in told.secrets)
    return Snapshot((*own, *told.resources, *(one for one in assignments if one.name in told.pools)))
