"""The policy ``session``."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.ask import A, B, C, D, Draws, ask, candidate, dispatcher
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import PoolsDeclared, ScrapeFailed, TimePassed
from tidegate.fleet.health import RULES, UNREACHABLE_AFTER
from tidegate.fleet.state import Fleet
from tidegate.scheduling.dispatch import Decision, Dispatcher
from tidegate.scheduling.pickers import session
from tidegate.scheduling.pickers.session import HOMES, REMEMBERED, Picker

MANY = tuple(f"10.1.{number}.1:8000" for number in range(100))


def picks(decides: Dispatcher, sessions: range, prefix: str) -> dict[int, str]:
    made = {number: decides.decide(ask(f"{prefix}{number}", session=f"s{number}"), 0.0) for number in sessions}
    return {number: pick.addresses[0] for number, pick in made.items() if isinstance(pick, Decision)}


def redeclare(fleet: Fleet, *addresses: str) -> None:
    fleet.apply(PoolsDeclared((PoolSpec("default", "vllm", ("*",), tuple(map(EndpointSpec, addresses))),)), 1.0)


@pytest.mark.parametrize("members", [(A, B, C, D), MANY])
def test_a_session_stays_though_loads_change(members: tuple[str, ...]) -> None:
    _, decides = dispatcher("session", *members, rng=random.Random(1))
    first = picks(decides, range(50), "a")
    assert len(set(first.values())) > 3
    assert picks(decides, range(50), "b") == first


@pytest.mark.parametrize("members", [(A, B, C, D), MANY])
def test_only_the_sessions_of_whoever_goes_move_and_only_once(members: tuple[str, ...]) -> None:
    fleet, decides = dispatcher("session", *members, rng=random.Random(1))
    first = picks(decides, range(80), "a")
    gone = first[0]
    redeclare(fleet, *(member for member in members if member != gone))
    second = picks(decides, range(80), "b")
    assert {number for number in first if second[number] != first[number]} == {
        number for number, home in first.items() if home == gone
    }
    assert picks(decides, range(80), "c") == second
    redeclare(fleet, *members)
    fleet.apply(TimePassed(), 1.0 + RULES.warm_up_seconds)
    assert picks(decides, range(80), "d") == first


@pytest.mark.parametrize("members", [(A, B, C, D), MANY])
def test_while_its_home_is_down_a_session_has_one_other(members: tuple[str, ...]) -> None:
    fleet, decides = dispatcher("session", *members, rng=random.Random(1))
    first = picks(decides, range(30), "a")
    for _ in range(UNREACHABLE_AFTER):
        fleet.apply(ScrapeFailed(first[0], unreachable=True, reason="refused"), 0.0)
    second, third = picks(decides, range(30), "b"), picks(decides, range(30), "c")
    assert second == third
    assert all((second[number] == home) == (home != first[0]) for number, home in first.items())


@settings(max_examples=60)
@given(st.text(min_size=1), st.sets(st.sampled_from((A, B, C, D)), min_size=1))
def test_other_comings_and_goings_do_not_move_a_session(key: str, others: set[str]) -> None:
    everybody = [candidate(address) for address in sorted({A, B, C, D})]
    home = Picker().rank(ask(session=key), everybody, Draws([0.5]))[0].address
    left = [endpoint for endpoint in everybody if endpoint.address in others | {home}]
    assert Picker().rank(ask(session=key), left, Draws([0.5]))[0].address == home


def test_a_request_without_a_session_goes_to_the_fewest_tokens() -> None:
    offered = [candidate(A, tokens=10), candidate(B, tokens=5)]
    assert Picker().rank(ask(), offered, Draws([0.5]))[0].address == B


def test_homes_in_a_large_pool_are_shared_equally() -> None:
    _, decides = dispatcher("session", *MANY, rng=random.Random(1))
    homes = Counter(picks(decides, range(2000), "a").values())
    assert len(homes) == 100
    assert max(homes.values()) < 60


def test_what_is_remembered_is_bounded_and_forgotten_with_the_membership(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "REMEMBERED", 10)
    assert REMEMBERED == 10_000
    picker, members = Picker(), tuple(map(EndpointSpec, MANY))
    for number in range(30):
        assert len(picker.shortlist(ask(session=str(number)), members, Draws([0.5]))) == HOMES
    assert len(picker._homes) == 10
    picker.shortlist(ask(session="s"), members[1:], Draws([0.5]))
    assert len(picker._homes) == 1
