"""The shortlist of a large pool."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduling.ask import Draws, ask, candidate, dispatcher, draws
from tidegate.fleet.endpoint import EndpointSpec
from tidegate.fleet.events import LoadReported, RequestReserved, ScrapeFailed
from tidegate.fleet.health import UNREACHABLE_AFTER
from tidegate.fleet.ledger import Reservation
from tidegate.fleet.load import EngineReport
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.pickers.round_robin import Picker as RoundRobin
from tidegate.scheduling.shortlist import CANDIDATES, drawn

MANY = [f"10.1.{number // 250}.{number % 250}:8000" for number in range(1000)]


@given(st.integers(CANDIDATES + 1, 20_000), draws())
def test_it_names_as_many_as_it_should_each_once(size: int, rng: Draws) -> None:
    places = drawn(size, rng)
    assert len(places) == len(set(places)) == CANDIDATES
    assert all(0 <= place < size for place in places)


@pytest.mark.parametrize("size", [25, 30, 97, 210])
def test_each_place_is_as_likely(size: int) -> None:
    rng = random.Random(1)
    counts = Counter(place for _ in range(8000) for place in drawn(size, rng))
    expected = 8000 * CANDIDATES / size
    assert all(counts[place] == pytest.approx(expected, rel=0.15) for place in range(size))


def test_a_live_one_is_found_among_a_thousand_dead() -> None:
    fleet, decides = dispatcher("least_tokens", *MANY, rng=random.Random(1))
    for address in MANY:
        if address != MANY[777]:
            for _ in range(UNREACHABLE_AFTER):
                fleet.apply(ScrapeFailed(address, unreachable=True, reason="refused"), 0.0)
    decision = decides.decide(ask(), 0.0)
    assert isinstance(decision, Decision)
    assert decision.addresses == (MANY[777],)


def test_whoever_knows_the_prompt_is_on_it() -> None:
    fleet, decides = dispatcher("prefix_affinity", *MANY, rng=random.Random(1))
    fleet.apply(RequestReserved(Reservation("r", "default", MANY[321], 64, 10, 0.0), (1, 2, 3), 16), 0.0)
    decision = decides.decide(ask(prefix=(1, 2, 3, 4)), 0.0)
    assert isinstance(decision, Decision)
    assert decision.addresses[0] == MANY[321]
    assert decision.reservation.uncached_tokens == 100 - 48


def test_a_burst_spreads_over_a_large_pool() -> None:
    fleet, decides = dispatcher("least_tokens", *MANY, rng=random.Random(1))
    for number in range(1000):
        decides.decide(ask(str(number)), 0.0)
    loads = [endpoint.inflight_requests for endpoint in fleet.view("default", 0.0).endpoints]
    assert max(loads) <= 2
    assert loads.count(0) < 150


def test_one_after_the_other_goes_round_a_large_pool_as_well() -> None:
    _, decides = dispatcher("round_robin", *MANY[:60], rng=Draws([0.5]))
    named = [decides.decide(ask(str(number)), 0.0) for number in range(120)]
    firsts = [decision.addresses[0] for decision in named if isinstance(decision, Decision)]
    assert firsts == sorted(MANY[:60]) * 2


def test_the_ring_follows_the_membership() -> None:
    picker, rng = RoundRobin(), Draws([0.5])
    members = [EndpointSpec(address) for address in sorted(MANY[:40])]
    assert list(picker.shortlist(ask(), members, rng)) == list(range(CANDIDATES))
    picker.rank(ask(), [candidate(members[-2].address)], rng)
    assert list(picker.shortlist(ask(), members, rng)) == [39, *range(CANDIDATES - 1)]
    assert list(picker.shortlist(ask(), members[:-1], rng)) == list(range(CANDIDATES))


def test_reports_of_the_others_do_not_burden_a_silent_one_that_was_drawn() -> None:
    fleet, _ = dispatcher("least_tokens", *MANY[:50], rng=random.Random(1))
    fleet.apply(LoadReported(MANY[0], EngineReport(running=8.0)), 0.0)
    assert [e.requests for e in fleet.view("default", 0.0, (0, 1)).endpoints] == [8.0, 8.0]
    assert [e.requests for e in fleet.view("default", 0.0, (1, 2)).endpoints] == [0.0, 0.0]
