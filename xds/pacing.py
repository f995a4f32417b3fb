"""When the next assignment may go out.

Every changed assignment restarts Envoy's own balancing schedule at the same place: at ten pushes a second, 6 or 7 of
50 equal endpoints got no traffic at all (measured with 1.40). Who is there matters at once; how much each is worth can
wait.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidegate.fleet.view import PoolView
from xds.endpoints import Members, members

WEIGHTS_EVERY = 1.0
"""Seconds between two publications that differ in weights alone."""

Table = Mapping[str, Members]
"""The members of each pool by its name."""


class Published(NamedTuple):
    """What Envoy was last told, and when (seconds, on the caller's monotonic clock)."""

    table: Table
    at: float


def table(pools: Sequence[PoolView]) -> Table:
    """Return the members of ``pools``."""
    return {pool.name: members(pool) for pool in pools}


def due(last: Published | None, wanted: Table, now: float) -> float | None:
    """Return the time at which ``wanted`` should be published: ``now`` at the earliest, ``None`` when it was already.

    Added, removed, ejected and returning members are due now; other weights a second after the last publication.
    """
    if last is None:
        return now
    if wanted == last.table:
        return None
    if _addresses(wanted) != _addresses(last.table):
        return now
    return max(now, last.at + WEIGHTS_EVERY)


def _addresses(of: Table) -> dict[str, frozenset[str]]:
    return {pool: frozenset(address for address, _ in known) for pool, known in of.items()}
