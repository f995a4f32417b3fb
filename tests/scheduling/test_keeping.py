"""How many places are kept free for the more important."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.scheduling.keeping import LATE, SOON, places_to_keep


def test_nothing_is_kept_for_nobody_nor_where_nothing_is_known() -> None:
    assert places_to_keep(0.0, 10.0, 5.0) == 0
    assert places_to_keep(2.0, 0.0, 5.0) == 0
    assert places_to_keep(2.0, 10.0, 0.9) == 0, "of a few places none is left to spare"


def test_the_more_are_asked_for_the_more_are_kept_up_to_the_most() -> None:
    kept = [places_to_keep(rate, 14.0, 100.0) for rate in (0.5, 1.4, 4.0, 7.0, 10.0)]
    assert kept == sorted(kept)
    assert (kept[0], kept[3]) == (1, 6)
    assert places_to_keep(7.0, 14.0, 2.4) == 2
    assert places_to_keep(20.0, 14.0, 2.4) == 2, "they take all that there is, and are left the same"


def test_nothing_is_kept_where_places_become_free_all_the_time() -> None:
    assert places_to_keep(10.0, 1000.0, 100.0) == 0


@given(st.floats(0.01, 1e3), st.floats(0.01, 1e3), st.integers(0, 50))
def test_so_many_places_leave_hardly_anybody_waiting_and_one_less_would_not(
    higher: float, freed: float, most: int
) -> None:
    kept = places_to_keep(higher, freed, most)
    assert 0 <= kept <= most

    def late(places: int) -> float:
        return (higher / freed) ** places * math.exp(-(freed - higher) * SOON)

    if higher < freed * 0.999:
        assert kept == most or late(kept) <= LATE * 1.001
        assert kept == 0 or late(kept - 1) >= LATE * 0.999


def test_the_chances_are_those_of_a_queue_with_a_threshold() -> None:
    """The others stop below ``servers - kept``; what is left is a chain that goes up by ``higher`` and down by all."""
    servers, kept, mean, higher = 16, 3, 1.0, 7.0
    # As many of the others wait as can be, so that at least ``servers - kept`` are busy.
    states = [1.0]
    for busy in range(servers - kept + 1, servers + 400):
        states.append(states[-1] * higher / (min(busy, servers) / mean))
    full = sum(states[kept:]) / sum(states)
    assert full == pytest.approx((higher / 16) ** kept, rel=0.35), "places become free at nearly the same rate"
