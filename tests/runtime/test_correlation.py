"""Finding a reservation by its request's id."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.runtime.correlation import Correlation


def test_a_reservation_is_found_by_its_requests_id_until_it_is_forgotten() -> None:
    correlation = Correlation()
    reservation = correlation.new_id("abc-1")
    assert correlation.find("abc-1") == "", "an id alone is not a reservation"
    correlation.remember(reservation)
    assert correlation.find("abc-1") == reservation
    correlation.forget(reservation)
    assert correlation.find("abc-1") == ""


def test_an_id_that_two_live_requests_bear_tells_nothing() -> None:
    correlation = Correlation()
    first, second = correlation.new_id("same"), correlation.new_id("same")
    assert first != second
    correlation.remember(first)
    correlation.remember(second)
    assert correlation.find("same") == ""
    correlation.forget(first)
    correlation.forget(second)
    assert correlation.find("same") == ""


@given(st.text())
def test_whatever_a_client_calls_its_request_ids_are_new_and_nothing_is_kept(request_id: str) -> None:
    correlation = Correlation()
    first, second = correlation.new_id(request_id), correlation.new_id(request_id)
    assert first != second
    assert len(first) < 120
    correlation.remember(first)
    assert correlation.find(request_id) in {"", first}
    correlation.forget(first)
    assert correlation.find(request_id) == ""


def test_a_request_without_an_id_is_not_found_by_the_empty_one() -> None:
    correlation = Correlation()
    correlation.remember(correlation.new_id(""))
    assert correlation.find("") == ""
