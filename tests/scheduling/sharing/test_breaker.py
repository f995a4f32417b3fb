"""When what fails is tried again."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.scheduling.sharing.breaker import FAILURES, FIRST_SECONDS, LONGEST_SECONDS, STEADY_SECONDS, Breaker


def broken(times: int, now: float = 0.0, jitter: float = 1.0) -> Breaker:
    breaker = Breaker()
    for _ in range(times):
        breaker.failed(now, jitter)
    return breaker


def test_it_begins_with_a_try_at_once() -> None:
    breaker = Breaker()
    assert (breaker.is_closed, breaker.is_open) == (False, False)
    assert breaker.retry_at <= 0


def test_a_failure_that_stands_alone_is_tried_again_at_once() -> None:
    for times in range(1, FAILURES):
        breaker = broken(times, now=5.0)
        assert not breaker.is_closed
        assert not breaker.is_open
        assert breaker.retry_at <= 5.0


def test_from_the_third_on_each_pause_is_twice_the_one_before_up_to_a_bound() -> None:
    pauses = [broken(FAILURES + more).retry_at for more in range(12)]
    assert pauses[:3] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS]
    assert pauses[-1] == LONGEST_SECONDS
    assert pauses == sorted(pauses)
    assert all(broken(FAILURES + more).is_open for more in range(12))


def test_jitter_takes_half_of_a_pause_at_the_most() -> None:
    assert broken(FAILURES, jitter=0.0).retry_at == FIRST_SECONDS / 2


def test_a_success_closes_it() -> None:
    breaker = broken(FAILURES)
    breaker.succeeded(1.0)
    assert (breaker.is_closed, breaker.is_open) == (True, False)


def test_what_fails_again_soon_does_not_begin_anew() -> None:
    breaker = broken(FAILURES + 3)
    breaker.succeeded(10.0)
    breaker.succeeded(10.0 + STEADY_SECONDS / 2)
    breaker.failed(20.0, 1.0)
    assert breaker.is_open
    assert breaker.retry_at == 20.0 + 16 * FIRST_SECONDS


def test_what_was_good_for_a_while_begins_anew() -> None:
    breaker = broken(FAILURES + 3)
    breaker.succeeded(10.0)
    breaker.succeeded(10.0 + STEADY_SECONDS)
    breaker.failed(30.0, 1.0)
    assert not breaker.is_open


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), max_size=200))
def test_in_ten_minutes_of_any_weather_it_tries_a_bounded_number_of_times(weather: list[tuple[bool, float]]) -> None:
    breaker, now, tries = Breaker(), 0.0, 0
    for good, jitter in weather:
        now = max(now + 0.02, breaker.retry_at if breaker.is_open else now)
        tries += 1
        if good:
            breaker.succeeded(now)
            now += 1.0
        else:
            breaker.failed(now, jitter)
            assert breaker.retry_at - now <= LONGEST_SECONDS + 1e-9
        assert breaker.is_closed is good
    # Never more than the free tries in a row, and what pauses allow.
    assert tries <= FAILURES * (1 + now / STEADY_SECONDS) + now / (FIRST_SECONDS / 2) + FAILURES
