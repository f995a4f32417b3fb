"""Lanes: large prompts keep to a part of the endpoints, nobody is idle beside a queue, and somebody is always left."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.ask import A, B, C, D, Draws, ask, candidate, candidates, configured
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.view import EndpointView
from tidegate.scheduling import pickers
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.explain import Case, Explanation, explain
from tidegate.scheduling.lanes import MUCH, NAME, Lane, Lanes, parts
from tidegate.scheduling.policy import Policy

LARGE = Lane(20_000, endpoints=(C, D))
SIZES = st.sampled_from([1, 500, 20_000, 20_001, 60_000, 200_000])


def busy(address: str, backlog: float = 0.0, requests: float = 3.0, cached: int = 0) -> EndpointView:
    return candidate(address, requests=requests, cached=cached)._replace(backlog=backlog)


def kept(tokens: int, *offered: EndpointView, lanes: Sequence[Lane] = (LARGE,)) -> list[str]:
    known = Lanes(lanes)
    known.declare([EndpointSpec(address) for address in (A, B, C, D)])
    return [one.address for one in known.keep(ask(prompt=tokens), offered)]


def members(*numbers: int) -> list[EndpointSpec]:
    return [EndpointSpec(f"10.0.1.{number}:8000") for number in numbers]


# -- which way a request goes


def test_a_large_prompt_keeps_to_its_lane() -> None:
    assert kept(60_000, busy(A), busy(B), busy(C), busy(D)) == [C, D]
    assert kept(60_000, busy(A), busy(B), busy(C, 5_000), busy(D)) == [D]


def test_a_large_prompt_does_not_wait_in_its_lane_while_another_endpoint_has_nothing_to_prefill() -> None:
    assert kept(60_000, busy(A, 100), busy(B), busy(C, 9_000), busy(D, 9_000)) == [B]


def test_where_everybody_has_prompts_to_prefill_it_waits_in_its_lane() -> None:
    assert kept(60_000, busy(A, 100), busy(B, 100), busy(C, 90_000), busy(D, 90_000)) == [C, D]


def test_small_prompts_keep_out_of_the_lane_and_do_not_wait_behind_a_large_one() -> None:
    assert kept(500, busy(A), busy(B, 60_000), busy(C), busy(D)) == [A]


def test_small_prompts_take_an_endpoint_of_the_lane_that_is_idle() -> None:
    assert kept(500, busy(A), busy(B), busy(C, requests=0.0), busy(D)) == [A, B, C]


def test_a_session_is_not_lured_to_an_endpoint_of_the_lane_while_that_is_idle() -> None:
    lanes = Lanes((LARGE,))
    lanes.declare([EndpointSpec(address) for address in (A, B, C, D)])
    request = ask(prompt=500, session="s")
    idle = busy(C, requests=0.0)
    assert [one.address for one in lanes.keep(request, [busy(A), busy(B), idle])] == [A, B]
    assert [one.address for one in lanes.keep(request, [busy(A, 60_000), busy(B, 60_000), idle])] == [C]


def test_where_large_prompts_are_all_over_their_own_part_they_take_whoever_has_little_to_prefill() -> None:
    assert kept(500, busy(A, 60_000), busy(B, 60_000), busy(C), busy(D, 60_000)) == [C]
    assert kept(500, *(busy(address, 60_000) for address in (A, B, C, D))) == [A, B]


def test_a_little_before_it_does_not_drive_a_small_prompt_from_where_its_policy_wants_it() -> None:
    assert kept(500, busy(A, 20_000 * MUCH), busy(B), busy(C), busy(D)) == [A, B]


def test_a_large_prompt_that_is_mostly_cached_is_at_home_where_that_is() -> None:
    assert kept(60_000, busy(A, cached=50_000), busy(B), busy(C), busy(D)) == [A, C, D]


@pytest.mark.parametrize("session", ["", "s"])
def test_an_endpoint_that_fails_its_requests_is_nobodys_part(session: str) -> None:
    known = Lanes((LARGE,))
    known.declare([EndpointSpec(address) for address in (A, B, C, D)])

    def takes(tokens: int, *failing: str) -> list[str]:
        offered = [busy(address)._replace(failing=0.98 * (address in failing)) for address in (A, B, C, D)]
        return [one.address for one in known.keep(ask(prompt=tokens)._replace(session=session), offered)]

    assert takes(500, A) == [B]
    assert takes(500, A, B) == [C, D]
    assert takes(60_000, C) == [D]
    assert takes(60_000, C, D) == [A, B]
    assert takes(500, A, B, C, D) == [A, B]


def test_each_size_has_its_own_lane() -> None:
    lanes = (Lane(50_000, endpoints=(D,)), Lane(10_000, endpoints=(C,)))
    everybody = [busy(address) for address in (A, B, C, D)]
    assert kept(10_000, *everybody, lanes=lanes) == [A, B]
    assert kept(10_001, *everybody, lanes=lanes) == [C]
    assert kept(90_000, *everybody, lanes=lanes) == [D]


# -- what always holds


@st.composite
def offers(draw: st.DrawFn) -> list[EndpointView]:
    backlogs = st.sampled_from([0.0, 1.0, 5_000.0, 5_001.0, 1e6])
    return [one._replace(backlog=draw(backlogs)) for one in draw(candidates())]


LANES = st.lists(
    st.builds(Lane, st.integers(1, 100_000), st.floats(0.01, 0.9)),
    min_size=1,
    max_size=3,
    unique_by=lambda lane: lane.above_tokens,
)


@settings(max_examples=200, deadline=None)
@given(offers(), LANES, SIZES)
def test_somebody_is_left_and_nobody_comes_in(offered: list[EndpointView], lanes: list[Lane], tokens: int) -> None:
    divided = Lanes(lanes)
    divided.declare(offered)
    found = divided.keep(ask(prompt=tokens), offered)
    assert found
    assert [one for one in offered if one in found] == list(found)


@settings(max_examples=200, deadline=None)
@given(offers(), LANES, SIZES)
def test_no_endpoint_is_idle_beside_a_queue(offered: list[EndpointView], lanes: list[Lane], tokens: int) -> None:
    divided = Lanes(lanes)
    divided.declare(offered)
    found = divided.keep(ask(prompt=tokens), offered)
    small = min(lane.above_tokens for lane in lanes)
    if any(one.requests < 1 for one in offered):
        assert all(one.backlog <= small * MUCH or one.requests < 1 for one in found)
        if tokens <= small:  # an idle one is among those that the policy chooses from
            assert any(one.requests < 1 for one in found)


@given(st.sets(st.integers(1, 200), min_size=1, max_size=40), LANES, st.integers(201, 250))
def test_when_an_endpoint_comes_few_others_move(numbers: set[int], lanes: list[Lane], new: int) -> None:
    before, after = parts(sorted(lanes), members(*numbers)), parts(sorted(lanes), members(*numbers, new))
    others = [one.address for one in members(*numbers)]
    moved = [address for address in others if before.get(address) != after.get(address)]
    # Each lane's border moves by the one that came, and by the one that the lane grows by: so do those behind it.
    assert len(moved) <= 2 * len(lanes) * (len(lanes) + 1) // 2


@given(st.sets(st.integers(1, 200), min_size=1, max_size=40), st.randoms())
def test_who_is_in_a_lane_hangs_on_the_addresses_alone(numbers: set[int], shuffle: random.Random) -> None:
    order = members(*numbers)
    again = order[:]
    shuffle.shuffle(again)
    lanes = [Lane(100, 0.2), Lane(1_000, 0.3)]
    assert parts(lanes, order) == parts(lanes, again)


def test_a_share_is_so_many_endpoints_and_at_least_one() -> None:
    assert Counter(parts([Lane(100, 0.25), Lane(1_000, 0.1)], members(*range(40))).values()) == {1: 10, 2: 4}
    assert len(parts([Lane(100, 0.25)], members(1, 2))) == 1
    assert parts([Lane(100, 0.25)], []) == {}


# -- in a decision


def pool(*addresses: str) -> PoolSpec:
    return PoolSpec("default", "vllm", ("*",), tuple(EndpointSpec(address) for address in addresses))


@pytest.mark.parametrize("policy", sorted(set(pickers.names()) - {"session"}))
def test_over_any_policy_large_prompts_are_kept_apart(policy: str) -> None:
    _, decides = configured(pool(A, B, C, D), rng=random.Random(1), policy=Policy(policy, lanes=(LARGE,)))
    for number in range(2):
        large = decides.decide(ask(f"large {number}", prompt=60_000, limit=10), 0.0)
        assert isinstance(large, Decision)
        assert large.addresses[0] in (C, D)
        assert len(large.addresses) == 3  # somebody else is still named for retries
    small = [decides.decide(ask(f"small {number}", prompt=100, limit=10), 0.0) for number in range(8)]
    assert {one.addresses[0] for one in small if isinstance(one, Decision)} <= {A, B}


def test_without_lanes_decisions_are_what_they_were() -> None:
    def all_of(policy: Policy) -> list[object]:
        _, decides = configured(pool(A, B, C, D), rng=random.Random(5), policy=policy)
        return [decides.decide(ask(str(n), prompt=n * 997 % 70_000), 0.0) for n in range(60)]

    assert all_of(Policy("least_tokens")) == all_of(Policy("least_tokens", lanes=()))
    assert all_of(Policy("least_tokens")) != all_of(Policy("least_tokens", lanes=(LARGE,)))


def test_an_explanation_names_the_lanes_among_the_filters() -> None:
    _, decides = configured(pool(A, B, C, D), rng=Draws([0.5]), policy=Policy("least_tokens", lanes=(LARGE,)))
    told = decides.explain(ask(prompt=60_000), 0.0)
    assert isinstance(told, Explanation)
    step = told.steps[-1]
    assert (step.filter, step.removed, step.passed_over) == (NAME, (A, B), False)


def test_a_recorded_decision_of_a_large_pool_is_explained_by_the_lanes_of_the_whole_pool() -> None:
    addresses = [one.address for one in members(*range(60))]
    _, decides = configured(pool(*addresses), rng=random.Random(2), policy=Policy("random", lanes=(Lane(20_000, 0.2),)))
    cases: list[Case] = []
    decides.sample(1.0, cases.append)
    for number in range(40):
        decides.decide(ask(str(number), prompt=30_000 * (number % 2) + 1, limit=5), 0.0)
    assert all(len(case.candidates) == len(case.parts) < 60 for case in cases)
    assert all(explain(case, pickers.make("random")).pick == case.addresses[0] for case in cases)
    assert all(explain(case, pickers.make("random")).order[0] == case.addresses[0] for case in cases)


# -- as text


def test_a_lane_can_be_written_in_one_word() -> None:
    assert Lane.parse("20000:0.25") == Lane(20_000, 0.25)


@given(st.text() | st.sampled_from(["", ":", "5", "5:", ":0.5", "0:0.5", "5:0", "5:1", "5:nan", "-1:0.5", "5:0.5:1"]))
def test_what_is_no_lane_is_said_to_be_none(text: str) -> None:
    above, _, share = text.partition(":")
    try:
        good = int(above) >= 1 and 0.0 < float(share) < 1.0
    except ValueError:
        good = False
    if good:
        assert Lane.parse(text) == Lane(int(above), float(share))
    else:
        with pytest.raises(ValueError, match="expected ABOVE_TOKENS:SHARE"):
            Lane.parse(text)
