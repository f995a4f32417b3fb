import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.scheduling.wait import DrainRate


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
