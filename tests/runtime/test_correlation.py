"""Finding reservations by their request's id."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.runtime.correlation import ENDED, Correlation


def test_a_reservation_is_found_by_its_requests_id_until_it_is_forgotten() -> None:
    correlation = Correlation()
    reservation = correlation.new_id("abc-1")
    assert correlation.ended("abc-1") == (), "an id alone is not a reservation"
    correlation.remember(reservation)
    assert correlation.ended("abc-1") == (reservation,)
    correlation.forget(reservation)
    assert correlation.ended("abc-1") == ()


def test_all_decisions_on_a_request_are_found() -> None:
    correlation = Correlation()
    first, second = correlation.new_id("same"), correlation.new_id("same")
    assert first != second
    correlation.remember(first)
    correlation.remember(second)
    assert correlation.ended("same") == (first, second)
    correlation.forget(first)
    assert correlation.ended("same") == (second,)
    correlation.forget(second)
    correlation.forget(second)
    assert correlation.ended("same") == ()


@given(st.text())
def test_whatever_a_client_calls_its_request_ids_are_new_and_nothing_is_kept(request_id: str) -> None:
    correlation = Correlation()
    first, second = correlation.new_id(request_id), correlation.new_id(request_id)
    assert first != second
    assert len(first) < 120
    correlation.remember(first)
    assert correlation.ended(request_id) in {(), (first,)}
    correlation.forget(first)
    assert correlation.ended(request_id) == ()


def test_a_request_without_an_id_is_not_found_by_the_empty_one() -> None:
    correlation = Correlation()
    reservation = correlation.new_id("")
    correlation.remember(reservation)
    assert correlation.ended("") == ()
    assert not correlation.came_too_late(reservation)


def test_a_decision_on_a_request_that_is_over_comes_too_late() -> None:
    correlation = Correlation()
    reservation = correlation.new_id("abc-1")
    assert not correlation.came_too_late(reservation)
    correlation.ended("abc-1")
    assert correlation.came_too_late(reservation)
    assert not correlation.came_too_late(correlation.new_id("abc-2"))


def test_no_more_than_so_many_ends_are_remembered() -> None:
    correlation = Correlation()
    for number in range(ENDED + 1):
        correlation.ended(f"r{number}")
    assert not correlation.came_too_late(correlation.new_id("r0"))
    assert correlation.came_too_late(correlation.new_id("r1"))
