"""How full a pool is."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduling.ask import A, B, C, D, candidate, candidates
from tidegate.fleet.breaker import Circuit
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import LoadReported, PoolsDeclared, RequestReserved
from tidegate.fleet.health import Reachability
from tidegate.fleet.ledger import Reservation
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import EndpointView, PoolView
from tidegate.scheduling.saturation import MOST, WAITING, Backlog, Objective, Saturation, Saturations, saturation

MIX = (1_000.0, 200.0)
OBJECTIVE = Objective(ttft_seconds=2.0)


def pool(*endpoints: EndpointView, engine: str = "vllm") -> PoolView:
    return PoolView("p", engine, ("*",), endpoints)


def figure(
    kv: float | None = None, batch: float | None = None, queue: float = 0.0, ttft: float | None = None
) -> Saturation:
    return Saturation(kv, batch, queue, ttft, endpoints=1)


def test_an_idle_pool_is_empty() -> None:
    idle = saturation(
        pool(candidate(A, running=0, waiting=0, kv_usage=0, kv_capacity=1e5, max_running=8)), MIX, OBJECTIVE
    )
    assert (idle.kv, idle.batch, idle.queue) == (0.0, 0.0, 0.0)
    assert idle.ttft is not None
    assert 0.0 < idle.ttft < 0.2


def test_the_figure_is_the_scarcest_of_its_parts() -> None:
    assert figure(kv=0.9, batch=0.1, queue=0.2, ttft=0.3).total == 0.9
    assert figure(kv=None, batch=0.1, queue=0.2, ttft=3.0).total == 3.0
    assert figure(kv=0.5).parts() == (("kv", 0.5), ("queue", 0.0), ("total", 0.5))


def test_what_was_sent_since_the_report_counts_at_once() -> None:
    full = saturation(pool(candidate(A, requests=8, tokens=90_000, kv_usage=0.1, kv_capacity=1e5, max_running=8)), MIX)
    assert (full.kv, full.batch) == (0.9, 1.0)


def test_one_overrun_endpoint_does_not_make_the_others_full() -> None:
    overrun = candidate(A, requests=80, tokens=1e6, kv_capacity=1e5, max_running=8)
    idle = candidate(B, requests=0, tokens=0, kv_capacity=1e5, max_running=8)
    half = saturation(pool(overrun, idle), MIX, OBJECTIVE)
    assert (half.kv, half.batch) == (0.5, 0.5)
    assert half.queue == pytest.approx(72 / (2 * WAITING)), "what it has beyond its batch waits"
    assert half.ttft is not None
    assert half.ttft < 0.2, "a good pick goes to the other"


def test_endpoints_weigh_by_their_size() -> None:
    large = candidate(A, tokens=0, kv_capacity=9e5, max_running=90)
    small = candidate(B, requests=10, tokens=1e5, kv_capacity=1e5, max_running=10)
    weighed = saturation(pool(large, small), MIX)
    assert (weighed.kv, weighed.batch) == (0.1, 0.1)


def test_a_cache_of_unknown_size_counts_by_what_is_said_of_it() -> None:
    told, sized = candidate(A, kv_usage=0.6), candidate(B, tokens=2e4, kv_capacity=1e5)
    assert saturation(pool(told), MIX).kv == 0.6
    assert saturation(pool(told, sized), MIX).kv == pytest.approx(0.4)


def test_what_nobody_knows_has_no_part() -> None:
    unknown = saturation(pool(candidate(A, requests=3, max_running=4)), MIX)
    assert (unknown.kv, unknown.ttft) == (None, None)
    assert unknown.total == unknown.batch == 0.75
    assert [name for name, _ in unknown.parts()] == ["batch", "queue", "total"]


def test_requests_that_wait_in_engines_and_in_the_own_queue_count_alike() -> None:
    waits = candidate(A, running=4, waiting=5, requests=9, max_running=8)
    assert saturation(pool(waits), MIX).queue == pytest.approx(5 / WAITING)
    assert saturation(pool(waits), MIX, Objective(waiting=10), Backlog(5, 5_000)).queue == pytest.approx(1.0)


def test_the_queue_delays_the_first_token() -> None:
    there = pool(candidate(A), candidate(B))
    alone = saturation(there, MIX, OBJECTIVE).ttft or 0.0
    learned = saturation(there, MIX, OBJECTIVE, Backlog(10, 12_000, rate=6_000.0)).ttft or 0.0
    assert learned - alone == pytest.approx(12_000 / 6_000 / 2.0)
    guessed = saturation(there, MIX, OBJECTIVE, Backlog(10, 12_000)).ttft or 0.0
    assert guessed > alone, "what was not learned is not nothing"


def test_a_report_of_waiting_requests_delays_the_first_token_where_nothing_is_reckoned() -> None:
    quiet, crowded = (saturation(pool(candidate(A, waiting=n)), MIX, OBJECTIVE).ttft for n in (0, 50))
    assert quiet is not None
    assert crowded is not None
    assert crowded > quiet + 50 * 1_000 * candidate(A).pace.prefill_seconds / 2.0 * 0.9


def test_an_endpoint_that_is_gone_is_no_room() -> None:
    gone = candidate(B, max_running=8)._replace(ejected=True)
    lost = candidate(C, max_running=8, reachability=Reachability.UNREACHABLE)
    there = candidate(A, requests=8, max_running=8)
    broken = candidate(D, max_running=8)._replace(circuit=Circuit.OPEN)
    found = saturation(pool(there, gone, lost, broken), MIX)
    assert (found.batch, found.endpoints) == (1.0, 1)


def test_where_all_look_unreachable_they_count_as_decisions_count_them() -> None:
    lost = [candidate(a, requests=4, max_running=8, reachability=Reachability.UNREACHABLE) for a in (A, B)]
    assert saturation(pool(*lost), MIX).batch == 0.5


def test_a_pool_without_endpoints_is_as_full_as_its_queue_is_long() -> None:
    empty = saturation(pool(), MIX, OBJECTIVE)
    assert (empty.kv, empty.batch, empty.ttft, empty.total, empty.endpoints) == (None, None, None, 0.0, 0)
    waited_for = saturation(pool(), MIX, OBJECTIVE, Backlog(20, 20_000))
    assert waited_for.total == 20 / WAITING


def test_a_silent_endpoint_is_neither_full_nor_idle() -> None:
    """Its own count goes on, the others stand for what it does not say, and it is told how many were silent."""
    fleet = Fleet(45.0, stale_after=5.0)
    members = tuple(EndpointSpec(address, max_running=10) for address in (A, B))
    fleet.apply(PoolsDeclared((PoolSpec("p", "vllm", ("*",), members),)), 0.0)
    for address in (A, B):
        fleet.apply(
            LoadReported(address, EngineReport(running=4, waiting=0, kv_usage=0.4, kv_capacity_tokens=1e5)), 0.0
        )
    heard = saturation(fleet.view("p", 1.0), fleet.mix("p"))
    assert (heard.silent, heard.batch) == (0, 0.4)
    fleet.apply(LoadReported(A, EngineReport(running=4, waiting=0, kv_usage=0.4, kv_capacity_tokens=1e5)), 6.0)
    partly = saturation(fleet.view("p", 7.0), fleet.mix("p"))
    assert (partly.silent, partly.batch, partly.kv) == (1, 0.4, 0.4)
    for number in range(5):
        fleet.apply(RequestReserved(Reservation(f"r{number}", "p", B, 100, 100, 20.0), (), 0), 20.0)
    unheard = saturation(fleet.view("p", 20.0), fleet.mix("p"))
    assert (unheard.silent, unheard.batch, unheard.kv) == (2, 0.25, None), "what we sent there is known all the same"


def test_engines_that_never_report_are_not_called_silent() -> None:
    assert saturation(pool(candidate(A), engine="none"), MIX).silent == 0
    assert saturation(pool(candidate(A)), MIX).silent == 1


def test_a_pool_is_pressed_that_is_about_to_miss_its_objective_under_load() -> None:
    assert not figure(kv=1.0, batch=1.0, queue=9.0).is_pressed, "there is none to miss"
    assert not figure(batch=0.5, ttft=0.79).is_pressed
    assert figure(batch=0.5, ttft=0.8).is_pressed
    assert not figure(batch=0.0, ttft=2.0).is_pressed, "its prompts take so long when nothing else is there"


@given(candidates(), st.floats(1, 1e6), st.floats(1, 1e5), st.integers(0, 10**6), st.integers(0, 10**9))
def test_the_parts_are_in_their_bounds(
    endpoints: list[EndpointView], prompt: float, output: float, requests: int, tokens: int
) -> None:
    found = saturation(pool(*endpoints), (prompt, output), OBJECTIVE, Backlog(requests, tokens))
    assert found.kv is None or 0 <= found.kv <= 1 + 1e-9
    assert found.batch is not None
    assert 0 <= found.batch <= 1 + 1e-9
    assert 0 <= found.queue <= MOST
    assert found.ttft is not None
    assert 0 < found.ttft <= MOST
    assert math.isfinite(found.total)
    assert found.total == max(part for _, part in found.parts())


@given(candidates(), st.floats(0, 100), st.integers(1, 100), st.integers(1, 10**6))
def test_more_load_never_makes_a_pool_look_emptier(
    endpoints: list[EndpointView], requests: float, waiting: int, tokens: int
) -> None:
    before = saturation(pool(*endpoints), MIX, OBJECTIVE, Backlog(waiting, tokens))
    more = [one._replace(requests=one.requests + requests, tokens=one.tokens + 100 * requests) for one in endpoints]
    after = saturation(pool(*more), MIX, OBJECTIVE, Backlog(waiting + 1, tokens + 1))
    for one, other in zip(before[:4], after[:4], strict=True):
        assert (one or 0.0) <= (other or 0.0) * (1 + 1e-9)


def test_whoever_asks_often_gets_what_was_found_a_moment_ago() -> None:
    fleet = Fleet(45.0)
    fleet.apply(PoolsDeclared((PoolSpec("p", "none", ("*",), (EndpointSpec(A),)),)), 0.0)
    asked: list[str] = []

    def backlog(name: str) -> Backlog:
        asked.append(name)
        return Backlog(5, 5_000, 1_000.0)

    found = Saturations(fleet, backlog)
    assert found.of("p", 1.0).ttft is None
    assert found.of("p", 1.05) is found.of("p", 1.1)
    assert asked == ["p"]
    found.configure({"p": OBJECTIVE})
    assert found.of("p", 1.1).ttft == pytest.approx(2.5, rel=0.1)
    assert found.of("p", 2.0).queue == 1.0
    assert asked == ["p"] * 3
    with pytest.raises(KeyError):
        found.of("q", 2.0)
