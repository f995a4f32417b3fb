"""Homes: shares by weight, and nobody moves without need."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.fleet.endpoint import EndpointSpec
from tidegate.scheduling import rendezvous

MEMBERS = [EndpointSpec(f"10.0.0.{number}:8000") for number in range(10)]


def home(key: str, members: list[EndpointSpec]) -> str:
    return max(members, key=rendezvous.draw(key)).address


def test_homes_are_shared_equally() -> None:
    homes = Counter(home(str(number), MEMBERS) for number in range(5000))
    assert all(homes[member.address] == pytest.approx(500, abs=100) for member in MEMBERS)


def test_twice_the_weight_is_home_to_twice_the_keys() -> None:
    members = [EndpointSpec("a:1", 1), EndpointSpec("b:1", 2), EndpointSpec("c:1", 5)]
    homes = Counter(home(str(number), members) for number in range(8000))
    assert [homes[member.address] for member in members] == pytest.approx([1000, 2000, 5000], rel=0.15)


@given(st.text(), st.integers(0, 9))
def test_only_the_keys_of_whoever_goes_move(key: str, gone: int) -> None:
    left = [member for place, member in enumerate(MEMBERS) if place != gone]
    before = home(key, MEMBERS)
    assert home(key, left) == before or before == MEMBERS[gone].address


@given(st.text())
def test_the_order_of_the_members_does_not_matter(key: str) -> None:
    assert home(key, MEMBERS) == home(key, MEMBERS[::-1])


def test_the_homes_are_the_same_in_every_process() -> None:
    homes = [home(f"session-{number}", MEMBERS) for number in range(4)]
    assert homes == ["10.0.0.8:8000", "10.0.0.0:8000", "10.0.0.6:8000", "10.0.0.8:8000"]
