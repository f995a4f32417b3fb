"""What holds for every policy, the ones yet to be written included."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.ask import Draws, ask, candidates, dispatcher, draws
from tidegate.fleet.events import LoadReported, RequestEnded, ScrapeFailed
from tidegate.fleet.health import UNREACHABLE_AFTER, Reachability
from tidegate.fleet.load import EngineReport
from tidegate.fleet.view import EndpointView
from tidegate.scheduling import pickers
from tidegate.scheduling.dispatch import Decision

POLICIES = pickers.names()


def test_the_policies_are_those_of_the_files() -> None:
    assert {"least_request", "least_tokens", "random", "round_robin", "weighted"} <= set(POLICIES)
    assert list(POLICIES) == sorted(POLICIES)


@pytest.mark.parametrize("name", ["", "best", "__init__", "../fleet", "least_tokens.Picker"])
def test_a_policy_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(KeyError):
        pickers.make(name)


@pytest.mark.parametrize("policy", POLICIES)
def test_each_pool_has_a_picker_of_its_own(policy: str) -> None:
    assert pickers.make(policy) is not pickers.make(policy)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60, deadline=None)
@given(
    rounds=st.lists(candidates(), min_size=1, max_size=4),
    prompt=st.integers(0, 10**7),
    limit=st.none() | st.integers(0, 10**6),
    session=st.sampled_from(["", "s1", "s2"]),
    adapter=st.sampled_from(["", "a", "z"]),
    rng=draws(),
)
def test_the_answer_is_an_order_of_the_candidates(
    policy: str,
    rounds: list[list[EndpointView]],
    prompt: int,
    limit: int | None,
    session: str,
    adapter: str,
    rng: Draws,
) -> None:
    picker = pickers.make(policy)
    request = ask(prompt=prompt, limit=limit, session=session, adapter=adapter)
    for given_candidates in rounds:
        before = list(given_candidates)
        ranked = picker.rank(request, given_candidates, rng)
        assert Counter(ranked) == Counter(before)
        assert given_candidates == before


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30, deadline=None)
@given(given_candidates=candidates(), prompt=st.integers(0, 10**7), session=st.sampled_from(["", "s1"]), rng=draws())
def test_what_an_order_rests_on_is_said_of_every_candidate(
    policy: str, given_candidates: list[EndpointView], prompt: int, session: str, rng: Draws
) -> None:
    picker = pickers.make(policy)
    request = ask(prompt=prompt, session=session)
    if not isinstance(picker, pickers.Explaining):
        return
    figures = picker.explain(request, given_candidates)
    assert set(figures) == {endpoint.address for endpoint in given_candidates}
    assert all(isinstance(figure, float) for each in figures.values() for figure in each.values())
    picker.rank(request, given_candidates, rng)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_picks(policy: str) -> None:
    def picks(seed: int) -> list[object]:
        _, decides = dispatcher(policy, *(f"10.0.0.{number}:8000" for number in range(40)), rng=random.Random(seed))
        asked = [ask(str(number), prompt=number * 7, prefix=(number % 3, number)) for number in range(60)]
        return [decides.decide(request, 0.0) for request in asked]

    assert picks(5) == picks(5)


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_endpoints_share_equally(policy: str) -> None:
    members = [f"10.0.0.{number}:8000" for number in range(4)]
    fleet, decides = dispatcher(policy, *members, rng=random.Random(2))
    shares: Counter[str] = Counter()
    for number in range(800):
        # In turns, so that what is in flight does not decide alone.
        decision = decides.decide(ask(str(number), session=str(number), prefix=(number,)), 0.0)
        assert isinstance(decision, Decision)
        shares[decision.addresses[0]] += 1
        if number >= 5:
            fleet.apply(RequestEnded(str(number - 5)), 0.0)
    assert all(shares[member] == pytest.approx(200, abs=60) for member in members), shares


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15, deadline=None)
@given(
    full=st.sets(st.integers(0, 7)),
    dead=st.sets(st.integers(0, 7)),
    size=st.sampled_from([1, 5, 8, 60]),
    prefix=st.lists(st.integers(0, 3), max_size=5, unique=True).map(tuple),
    rng=draws(),
)
def test_a_fitting_live_endpoint_is_picked_when_there_is_one(
    policy: str, full: set[int], dead: set[int], size: int, prefix: tuple[int, ...], rng: Draws
) -> None:
    # All but at most eight of a large pool are full, so that a draw alone would hardly find them.
    members = [f"10.0.{number}.1:8000" for number in range(size)]
    fleet, decides = dispatcher(policy, *members, rng=rng)
    full |= set(range(8, size))
    dead -= set(range(size, 8))
    for number in full & set(range(size)):
        fleet.apply(LoadReported(members[number], EngineReport(kv_usage=1.0, kv_capacity_tokens=1000.0)), 0.0)
    for number in dead:
        for _ in range(UNREACHABLE_AFTER):
            fleet.apply(ScrapeFailed(members[number], unreachable=True, reason="refused"), 0.0)
    fitting = {members[number] for number in range(size) if number not in full | dead}
    for number in range(3):
        decision = decides.decide(ask(str(number), prefix=prefix, session="s"), 0.0)
        assert isinstance(decision, Decision)
        assert not fitting or decision.addresses[0] in fitting


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 8),
    dead=st.sets(st.integers(0, 7)),
    destinations=st.integers(1, 10),
    prompts=st.lists(st.integers(0, 200_000), min_size=1, max_size=15),
    rng=draws(),
)
def test_a_live_endpoint_is_named_as_long_as_there_is_one(
    policy: str, size: int, dead: set[int], destinations: int, prompts: list[int], rng: Draws
) -> None:
    members = [f"10.0.0.{number}:8000" for number in range(size)]
    fleet, decides = dispatcher(policy, *members, rng=rng, destinations=destinations)
    for number in dead:
        for _ in range(UNREACHABLE_AFTER):
            fleet.apply(ScrapeFailed(f"10.0.0.{number}:8000", unreachable=True, reason="refused"), 0.0)
    live = {
        endpoint.address
        for endpoint in fleet.view("default", 0.0).endpoints
        if endpoint.reachability is not Reachability.UNREACHABLE
    }
    for number, prompt in enumerate(prompts):
        decision = decides.decide(ask(str(number), prompt=prompt), 0.0)
        assert isinstance(decision, Decision)
        named = decision.addresses
        assert len(set(named)) == len(named) == min(destinations, len(live or members))
        assert set(named) <= (live or set(members))
        assert decision.reservation.address == named[0]


@pytest.mark.parametrize("policy", ["least_request", "least_tokens", "round_robin"])
@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 8),
    burst=st.integers(1, 60),
    prompt=st.integers(0, 100_000),
    limit=st.none() | st.integers(0, 5000),
    rng=draws(),
)
def test_a_burst_of_equal_requests_between_two_scrapes_spreads(
    policy: str, size: int, burst: int, prompt: int, limit: int | None, rng: Draws
) -> None:
    members = [f"10.0.0.{number}:8000" for number in range(size)]
    fleet, decides = dispatcher(policy, *members, rng=rng)
    for number in range(burst):
        decides.decide(ask(str(number), prompt=prompt, limit=limit), 0.0)
    sent = [endpoint.inflight_requests for endpoint in fleet.view("default", 0.0).endpoints]
    assert sum(sent) == burst
    assert max(sent) - min(sent) <= 1
