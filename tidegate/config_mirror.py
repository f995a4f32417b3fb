"""Mirrors: copies of a pool's requests for another pool, whose answers nobody waits for."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from pydantic import Field

from tidegate.config_values import PoolName, Section
from tidegate.faults import shown


class Mirror(Section):
    """Another pool that gets a copy of requests, to be tried out with real traffic."""

    pool: PoolName = Field(description="Its name. Nothing else needs to lead there.")
    percent: float = Field(
        100, gt=0, le=100, allow_inf_nan=False, description="How many of a hundred requests are copied, by chance."
    )


class Mirrored(Protocol):
    """What has to be known of a pool."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def mirror(self) -> Mirror | None:
        """What gets copies of its requests."""
        ...


def misled(pools: Sequence[Mirrored]) -> Iterator[str]:
    """Yield a line for each mirror that makes no sense."""
    others = {pool.name: pool.mirror for pool in pools}
    for at, pool in enumerate(pools):
        if pool.mirror is None:
            continue
        key, to = f"pools[{at}].mirror.pool", pool.mirror.pool
        if to not in others or to == pool.name:
            expected = ", ".join(name for name in others if name != pool.name)
            yield f"{key}: expected another pool ({expected or 'there is none'}), not {shown(to)}"
        elif others[to] is not None:
            yield f"{key}: expected a pool without a mirror of its own; {shown(to)} has one"
