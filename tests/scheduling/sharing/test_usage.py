"""Limits known by what is used of them: the same as ``Budgets`` knows by what is left."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.scheduling.budget import DAY_SECONDS, Budgets, Cost, Limit, Unit, Window
from tidegate.scheduling.sharing import usage

NOON = 1_700_000_000.0
LIMITS = st.builds(
    lambda window, amount, burst: Limit(Unit.TOKENS, window, amount, burst if window is Window.MINUTE else None),
    st.sampled_from(Window),
    st.integers(1, 1000),
    st.none() | st.integers(1, 2000),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["reserve", "settle", "release"]), st.integers(0, 500), st.floats(0, DAY_SECONDS)),
    max_size=30,
)


@given(LIMITS, STEPS)
def test_the_whole_of_a_limit_is_what_budgets_say_it_is(limit: Limit, steps: list[tuple[str, int, float]]) -> None:
    budgets, used, at, now = Budgets(), 0.0, NOON, NOON
    budgets.configure({"s": [limit]}, NOON)
    held: list[tuple[str, int, int]] = []
    for number, (act, amount, pause) in enumerate(steps):
        now += pause
        used, at = usage.after(limit, used, at, now), now
        day = math.floor(now / DAY_SECONDS)
        if act == "reserve":
            theirs = budgets.reserve(f"r{number}", ["s"], Cost(amount, 0), now)
            ours = usage.exceeded("s", limit, used, amount, now)
            assert (ours is None) == (theirs is None)
            if theirs is None:
                used += amount
                held.append((f"r{number}", amount, day))
            elif ours is not None:
                assert (ours.scope, ours.limit, ours.needed) == (theirs.scope, theirs.limit, theirs.needed)
                assert ours.wait_seconds == pytest.approx(theirs.wait_seconds, abs=1e-3)
        elif held:
            name, taken, since = held.pop()
            spent = amount if act == "settle" else 0
            if act == "settle":
                budgets.settle(name, Cost(spent, 0), now)
            else:
                budgets.release(name, now)
            change = -taken if act == "release" or limit.window is Window.IN_FLIGHT else spent - taken
            if change > 0 or limit.window is not Window.DAY or since == day:
                used = max(0.0, used + change)
        (theirs_left,) = budgets.left("s", now)
        ours_left = usage.left(limit, used, now)
        assert ours_left.amount == pytest.approx(theirs_left.amount, abs=1)
        assert ours_left.reset_seconds == pytest.approx(theirs_left.reset_seconds, abs=1e-2)


@given(LIMITS, st.integers(1, 10), st.floats(0, 2000), st.integers(0, 2000))
def test_what_does_not_fit_a_part_fits_it_after_its_wait(limit: Limit, parts: int, used: float, needed: int) -> None:
    if usage.fits(limit, used, needed, parts):
        return
    wait = usage.wait(limit, used, needed, NOON, parts)
    if needed > limit.capacity:
        assert wait == math.inf
    elif limit.window is Window.IN_FLIGHT:
        assert wait == 0
    else:
        later = NOON + wait + 1e-3
        assert usage.fits(limit, usage.after(limit, used, NOON, later, parts), needed, parts)
        if wait > 1:
            sooner = NOON + wait * 0.99 - 0.01
            assert not usage.fits(limit, usage.after(limit, used, NOON, sooner, parts), needed, parts)


@given(LIMITS, st.integers(1, 50))
def test_parts_come_to_no_more_than_the_whole_unless_each_would_be_nothing(limit: Limit, parts: int) -> None:
    part = usage.capacity(limit, parts)
    assert part >= 1
    assert part * parts <= max(limit.capacity, parts)


def test_more_than_a_part_fits_one_of_which_nothing_is_used() -> None:
    limit = Limit(Unit.TOKENS, Window.MINUTE, 900)
    assert usage.fits(limit, 0.0, 900, 3)
    assert not usage.fits(limit, 0.0, 901, 3)
    assert not usage.fits(limit, 0.1, 301, 3)
    assert usage.wait(limit, 100.0, 900, NOON, 3) == pytest.approx(20.0)


def test_a_clock_that_goes_back_gives_nothing_back() -> None:
    for window in Window:
        assert usage.after(Limit(Unit.TOKENS, window, 60), 50.0, NOON, NOON - DAY_SECONDS * 3) == 50.0
