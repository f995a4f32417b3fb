"""What the fleet knows of the engines' caches, and when it forgets it."""

from tests.fleet.declare import A, B, C, fleet_of, pool, reservation
from tidegate.fleet.events import (
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    LoadReported,
    PoolsDeclared,
    RequestReserved,
    ScrapeFailed,
)
from tidegate.fleet.health import UNREACHABLE_AFTER
from tidegate.fleet.load import EngineReport, plausible, restarted
from tidegate.fleet.state import Fleet

CHAIN = (1, 2, 3)


def warm(*addresses: str) -> Fleet:
    """Return a fleet in which a prompt was sent to each of these."""
    fleet = fleet_of(pool(A, B))
    for number, address in enumerate(addresses):
        fleet.apply(RequestReserved(reservation(str(number), address=address), CHAIN, 16), 0.0)
    return fleet


def blocks(fleet: Fleet, *addresses: str) -> list[int]:
    match = fleet.cached("default", CHAIN)
    return [match.blocks(address) for address in addresses]


def test_a_prompt_is_held_where_it_was_sent() -> None:
    assert blocks(warm(A), A, B) == [3, 0]


def test_a_reservation_without_a_prefix_says_nothing_of_the_cache() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(RequestReserved(reservation()), 0.0)
    assert blocks(fleet, A) == [0]


def test_a_counter_that_falls_is_a_restart_and_the_cache_is_empty() -> None:
    fleet = warm(A, B)
    fleet.apply(LoadReported(A, EngineReport(prompt_tokens_total=500.0)), 1.0)
    assert blocks(fleet, A, B) == [3, 3]
    fleet.apply(LoadReported(A, EngineReport(prompt_tokens_total=20.0)), 2.0)
    assert blocks(fleet, A, B) == [0, 3]


def test_another_start_is_a_restart_though_no_counter_fell() -> None:
    before = EngineReport(generation_tokens_total=0.0, started_at=100.0)
    assert not restarted(before, EngineReport(generation_tokens_total=5.0, started_at=100.0))
    assert restarted(before, EngineReport(generation_tokens_total=5.0, started_at=101.0))


def test_what_an_engine_stops_saying_is_no_restart() -> None:
    assert not restarted(EngineReport(prompt_tokens_total=9.0, started_at=1.0), EngineReport())
    assert not restarted(EngineReport(), EngineReport(prompt_tokens_total=9.0, started_at=1.0))


def test_where_nothing_listens_any_more_nothing_is_cached() -> None:
    fleet = warm(A, B)
    for _ in range(UNREACHABLE_AFTER):
        fleet.apply(ScrapeFailed(A, unreachable=True, reason="refused"), 1.0)
    assert blocks(fleet, A, B) == [0, 3]


def test_a_slow_answer_leaves_the_cache_alone() -> None:
    fleet = warm(A)
    for _ in range(UNREACHABLE_AFTER):
        fleet.apply(ScrapeFailed(A, unreachable=False, reason="timeout"), 1.0)
    assert blocks(fleet, A) == [3]


def test_the_reported_cache_bounds_what_is_held() -> None:
    fleet = fleet_of(pool(A))
    fleet.apply(LoadReported(A, EngineReport(kv_capacity_tokens=32.0)), 0.0)
    fleet.apply(RequestReserved(reservation(), CHAIN, 16), 0.0)
    assert blocks(fleet, A) == [2]


def test_an_endpoint_that_left_and_came_back_holds_nothing() -> None:
    fleet = warm(A, B)
    fleet.apply(PoolsDeclared((pool(B, C),)), 1.0)
    fleet.apply(PoolsDeclared((pool(A, B),)), 2.0)
    assert blocks(fleet, A, B) == [0, 3]


def test_the_engines_own_word_counts() -> None:
    fleet = fleet_of(pool(A, B))
    fleet.apply(BlocksStored(A, CHAIN[:2], 16), 0.0)
    assert blocks(fleet, A, B) == [2, 0]
    fleet.apply(BlocksStored(A, CHAIN[2:], 16), 0.0)
    assert blocks(fleet, A) == [3]
    fleet.apply(BlocksRemoved(A, CHAIN[1:2]), 0.0)
    assert blocks(fleet, A) == [1]
    fleet.apply(BlocksCleared(A), 0.0)
    assert blocks(fleet, A) == [0]


def test_blocks_of_unknown_endpoints_are_nobodys() -> None:
    fleet = fleet_of(pool(A))
    for event in (BlocksStored(C, CHAIN, 16), BlocksRemoved(C, CHAIN), BlocksCleared(C)):
        assert fleet.apply(event, 0.0) == []


def test_adapters_are_known_while_the_report_is_fresh() -> None:
    fleet = fleet_of(pool(A))
    report = EngineReport(max_adapters=2.0, running_adapters=frozenset("a"), waiting_adapters=frozenset("b"))
    assert plausible(report) == report
    fleet.apply(LoadReported(A, report), 0.0)
    assert fleet.view("default", 1.0).endpoints[0].adapters == (frozenset("a"), frozenset("b"), 2.0)
    assert fleet.view("default", 100.0).endpoints[0].adapters is None


def test_only_the_endpoints_that_are_asked_for_are_looked_at() -> None:
    fleet = fleet_of(pool(A, B, C))
    fleet.apply(LoadReported(C, EngineReport(running=4.0)), 0.0)
    view = fleet.view("default", 0.0, (2, 0))
    assert [(endpoint.address, endpoint.requests) for endpoint in view.endpoints] == [(C, 4.0), (A, 4.0)]


def test_free_cache_is_what_neither_the_engine_nor_we_count_as_used() -> None:
    fleet = fleet_of(pool(A, B))
    fleet.apply(LoadReported(A, EngineReport(kv_capacity_tokens=1000.0, kv_usage=0.25)), 0.0)
    one, other = fleet.view("default", 0.0).endpoints
    assert (one.kv_free_tokens, other.kv_free_tokens) == (750.0, None)
    fleet.apply(RequestReserved(reservation(prompt=300, output=100)), 0.0)
    assert fleet.view("default", 0.0).endpoints[0].kv_free_tokens == 600.0
