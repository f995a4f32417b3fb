import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.scheduling.wait import (
    ENOUGH_REQUESTS,
    LEAST_SPARE,
    MOST_TENANTS,
    RECENT_SECONDS,
    SILENT_TIMES,
    DrainRate,
    until,
)


def steady(rate: float, seconds: float, *, pause: float = 0.1, learned: DrainRate | None = None) -> DrainRate:
    """A queue that is never empty, from which ``rate`` tokens are taken a second, for ``seconds``."""
    made, now = learned or DrainRate(), 100.0
    made.waits(now)
    for _ in range(round(seconds / pause)):
        now += pause
        made.taken(round(rate * pause), now, empty=False)
    made.emptied(now)
    return made


def test_nothing_is_known_before_anything_waited() -> None:
    made = DrainRate()
    assert made.rate() is None
    assert made.seconds_for(100) is None
    made.taken(1000, 1.0, empty=True)
    assert made.rate() is None, "what did not wait says nothing about how fast a queue is emptied"


@pytest.mark.parametrize("seconds", [2, 20, 200])
def test_a_steady_rate_is_learned(seconds: float) -> None:
    assert steady(1000, seconds).rate() == pytest.approx(1000, rel=0.05)
    assert steady(1000, seconds).seconds_for(5000) == pytest.approx(5, rel=0.05)


def test_the_time_in_which_nothing_waits_does_not_count() -> None:
    made = DrainRate()
    for start in (0.0, 1000.0, 2000.0):
        made.waits(start)
        made.taken(1000, start + 1.0, empty=True)
        assert made.seconds == pytest.approx(1 + start / 1000, rel=0.1)
    assert made.rate() == pytest.approx(1000, rel=0.05)


def test_a_pool_that_slows_down_is_noticed_within_a_minute() -> None:
    made = steady(1000, 300)
    assert steady(100, 60, learned=made).rate() == pytest.approx(100, abs=150)


def test_requests_that_leave_are_not_what_a_pool_takes() -> None:
    made = DrainRate()
    made.waits(0.0)
    made.emptied(10.0)
    assert made.rate() is None


def test_a_prior_counts_until_enough_was_seen() -> None:
    made = DrainRate()
    assert made.rate(prior=500.0) == 500.0
    made.waits(0.0)
    made.taken(500, 0.5, empty=True)
    assert made.rate(prior=500.0) == pytest.approx(750, rel=0.02)
    assert steady(1000, 10).rate(prior=1.0) == pytest.approx(1000, rel=0.05)
    assert DrainRate().rate(prior=0.0) is None


@given(
    st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(0, 10_000), st.booleans()), max_size=50),
    st.integers(0, 10**6),
    st.one_of(st.none(), st.floats(0.0, 1e6)),
)
def test_whatever_was_seen_a_wait_is_unknown_or_a_finite_time(
    seen: list[tuple[float, int, bool]], ahead: int, prior: float | None
) -> None:
    made, now = DrainRate(), 0.0
    for pause, tokens, empty in seen:
        made.waits(now)
        now += pause
        made.taken(tokens, now, empty=empty)
    wait = made.seconds_for(ahead, prior)
    assert wait is None or 0.0 <= wait < float("inf")


def test_a_wait_is_what_is_ahead_over_what_those_leave_who_overtake() -> None:
    assert until(1000, 100) == 10.0
    assert until(1000, 100, [(60, math.inf)]) == pytest.approx(1000 / 40)
    assert until(1000, 100, [(60, 5.0)]) == pytest.approx((1000 + 60 * 5) / 100), "then nobody overtakes any more"
    assert until(1000, 100, [(30, math.inf), (60, 5.0)]) == pytest.approx((1000 + 60 * 5) / 70)
    assert until(10, 100, [(30, math.inf), (60, 5.0)]) == pytest.approx(1.0)


def test_who_is_left_nothing_waits_for_ever_or_until_its_age_counts() -> None:
    assert until(1000, 100, [(100, math.inf)]) == math.inf
    assert until(1000, 100, [(70, math.inf), (80, math.inf)]) == math.inf
    assert until(1000, 100, [(150, 10.0)]) == pytest.approx((1000 + 1500) / 100)


@given(
    st.floats(0.0, 1e6),
    st.floats(0.1, 1e4),
    st.lists(st.tuples(st.floats(0.0, 1e4), st.one_of(st.floats(0.0, 1e3), st.just(math.inf))), max_size=6),
)
def test_at_the_end_of_a_wait_all_is_done_that_went_first(
    ahead: float, rate: float, overtaking: list[tuple[float, float]]
) -> None:
    wait = until(ahead, rate, overtaking)
    assert wait >= ahead / rate * (1 - 1e-9)
    if math.isinf(wait):
        assert sum(tokens for tokens, lasts in overtaking if math.isinf(lasts)) >= rate * (0.999 - LEAST_SPARE)
    else:
        done = ahead + sum(tokens * min(lasts, wait) for tokens, lasts in overtaking)
        assert rate * wait == pytest.approx(done, rel=1e-6, abs=1e-6)


def mixed(seconds: float) -> DrainRate:
    """A queue from which a request is taken each tenth of a second, one in four of them urgent."""
    made = DrainRate()
    made.waits(0.0)
    for at in range(1, round(seconds * 10) + 1):
        urgent = at % 4 == 0
        tenant = f"t{at % 3}" if urgent else "normal"
        made.taken(200 if urgent else 100, at / 10, empty=False, band=5 if urgent else 0, tenant=tenant)
    return made


def test_it_is_learned_what_the_bands_above_take() -> None:
    (above,) = mixed(60.0).above(0, 60.0)
    assert above.band == 5
    assert above.requests == pytest.approx(2.5, rel=0.05)
    assert above.tokens == pytest.approx(500, rel=0.05)
    assert mixed(60.0).above(5, 60.0) == []
    assert len(mixed(60.0).above(-1, 60.0)) == 2
    assert mixed((ENOUGH_REQUESTS - 1) / 10).above(-1, 1.0) == [], "too little was seen"


def test_a_band_that_falls_silent_is_believed_less_and_less_and_then_no_more() -> None:
    made = mixed(60.0)
    loud = made.above(4, 60.0)[0].requests
    later = made.above(4, 70.0)[0].requests
    assert later == pytest.approx(SILENT_TIMES / 10.0, rel=0.01)
    assert later < loud / 5
    assert made.above(4, 60.0 + RECENT_SECONDS) == []


def test_it_is_learned_what_the_tenants_of_a_band_take() -> None:
    made = mixed(60.0)
    rest, each = made.others(5, "t0", ["t1"])
    assert each == {"t1": pytest.approx(500 / 3, rel=0.1)}
    assert rest == pytest.approx(500 / 3, rel=0.1), "that of the third"
    assert made.others(5, "new", [])[0] == pytest.approx(500, rel=0.05)
    assert made.others(7, "t0", []) == (0.0, {})


def test_tenants_beyond_a_number_are_no_longer_told_apart() -> None:
    made = mixed(60.0)
    for at in range(10 * MOST_TENANTS):
        made.taken(1, 60.0, empty=False, band=0, tenant=f"small {at}")
    rest, each = made.others(0, "small 1", ["normal"])
    assert each["normal"] == pytest.approx(750, rel=0.05)
    assert rest == pytest.approx(10 * MOST_TENANTS / made.seconds, rel=0.3)
    assert len(made._bands[0].tenants) <= MOST_TENANTS


def test_what_bands_took_is_forgotten_evenly_however_long_it_goes_on() -> None:
    made = DrainRate()
    made.waits(0.0)
    for at in range(1, 8000):
        made.taken(100, float(at), empty=False, band=at % 2)
    assert made.above(0, 7999.0)[0].requests == pytest.approx(0.5, rel=0.05)
    made.taken(100, 99_999.0, empty=True, band=1)
    assert len(made.above(-1, 99_999.0)) <= 1
