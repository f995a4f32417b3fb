from hypothesis import given
from hypothesis import strategies as st

from tests.xds.fleets import pool
from xds.pacing import WEIGHTS_EVERY, Published, due, table

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
BOTH = table([pool("p", {A: 1, B: 1})])


def test_the_first_table_is_due_at_once() -> None:
    assert due(None, BOTH, 7.0) == 7.0


def test_what_was_published_is_not_due_again() -> None:
    assert due(Published(BOTH, 0.0), table([pool("p", {A: 1, B: 1})]), 100.0) is None


def test_an_ejection_and_a_return_are_due_at_once() -> None:
    one = table([pool("p", {A: 1, B: 1}, ejected=(B,))])
    assert due(Published(BOTH, 9.9), one, 10.0) == 10.0
    assert due(Published(one, 9.9), BOTH, 10.0) == 10.0


def test_a_new_pool_is_due_at_once() -> None:
    more = table([pool("p", {A: 1, B: 1}), pool("q", {})])
    assert due(Published(BOTH, 9.9), more, 10.0) == 10.0


def test_weights_alone_wait_for_a_second_since_the_last_publication() -> None:
    heavier = table([pool("p", {A: 2, B: 1})])
    assert due(Published(BOTH, 9.5), heavier, 10.0) == 10.5
    assert due(Published(BOTH, 5.0), heavier, 10.0) == 10.0


def test_a_weight_that_changes_with_a_member_does_not_hold_it_up() -> None:
    assert due(Published(BOTH, 9.9), table([pool("p", {A: 2})]), 10.0) == 10.0


@given(st.lists(st.tuples(st.floats(0, 0.3), st.integers(1, 4)), max_size=40))
def test_weights_alone_are_never_published_more_than_once_a_second(steps: list[tuple[float, int]]) -> None:
    now, last = 0.0, Published(BOTH, 0.0)
    for pause, weight in steps:
        now += pause
        wanted = table([pool("p", {A: weight, B: 1})])
        at = due(last, wanted, now)
        if at is not None and at <= now:
            assert now - last.at >= WEIGHTS_EVERY - 1e-9
            last = Published(wanted, now)
