"""A pool whose engines tell what they cache: their word counts, and nothing else."""

from dataclasses import replace

from tests.fleet.declare import A, B, fleet_of, pool, reservation
from tidegate.fleet.endpoint import PoolSpec
from tidegate.fleet.events import (
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    LoadReported,
    PoolsDeclared,
    RequestReserved,
    ScrapeFailed,
)
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet

CHAIN = (11, 12, 13)


def told(*addresses: str) -> PoolSpec:
    return replace(pool(*addresses), told=True)


def cached(fleet: Fleet, address: str = A) -> int:
    return fleet.cached("default", CHAIN).blocks(address)


def test_sending_a_request_somewhere_is_no_sign_of_what_is_cached_there() -> None:
    fleet = fleet_of(told(A, B))
    fleet.apply(RequestReserved(reservation("r1"), CHAIN, 16), 0.0)
    assert cached(fleet) == 0
    assert fleet.ledger.inflight(A).requests == 1


def test_the_engines_word_counts_at_once() -> None:
    fleet = fleet_of(told(A, B))
    fleet.apply(BlocksStored(A, CHAIN, 16), 0.0)
    assert (cached(fleet), cached(fleet, B)) == (3, 0)
    fleet.apply(BlocksRemoved(A, CHAIN[1:2]), 0.0)
    assert cached(fleet) == 1
    fleet.apply(BlocksCleared(A), 0.0)
    assert cached(fleet) == 0


def test_what_is_seen_from_outside_is_behind_the_engines_word() -> None:
    fleet = fleet_of(told(A, B))
    fleet.apply(LoadReported(A, EngineReport(started_at=100.0)), 0.0)
    fleet.apply(BlocksStored(A, CHAIN, 16), 1.0)
    fleet.apply(LoadReported(A, EngineReport(started_at=200.0)), 2.0)
    assert cached(fleet) == 3
    for _ in range(5):
        fleet.apply(ScrapeFailed(A, unreachable=True, reason="refused"), 3.0)
    assert cached(fleet) == 3


def test_a_pool_that_changes_its_way_forgets_what_it_knew_in_the_other() -> None:
    fleet = fleet_of(pool(A, B))
    fleet.apply(RequestReserved(reservation("r1"), CHAIN, 16), 0.0)
    assert cached(fleet) == 3
    fleet.apply(PoolsDeclared((told(A, B),)), 1.0)
    assert cached(fleet) == 0
    fleet.apply(BlocksStored(A, CHAIN, 16), 2.0)
    fleet.apply(PoolsDeclared((told(A, B),)), 3.0)
    assert cached(fleet) == 3
    fleet.apply(PoolsDeclared((pool(A, B),)), 4.0)
    assert cached(fleet) == 0


def test_another_process_is_told_what_engines_said_before_it_began() -> None:
    fleet = fleet_of(told(A, B))
    fleet.apply(BlocksStored(A, CHAIN, 16), 0.0)
    fleet.apply(BlocksStored(A, (21, 22), 16), 0.0)
    replica = Fleet(45.0)
    replica.restore(fleet.image(), 1.0)
    assert cached(replica) == 3
    assert replica.image() == fleet.image()
    replica.apply(BlocksRemoved(A, CHAIN[2:]), 2.0)
    assert cached(replica) == 2


def test_what_is_guessed_is_not_handed_on() -> None:
    fleet = fleet_of(pool(A, B))
    fleet.apply(RequestReserved(reservation("r1"), CHAIN, 16), 0.0)
    assert all(member.told == () for member in fleet.image().members)
