"""Reachability: several failed connections in a row."""

from tidegate.fleet.health import UNREACHABLE_AFTER, ConnectionRecord, Reachability

UNKNOWN, UP, DOWN = Reachability.UNKNOWN, Reachability.REACHABLE, Reachability.UNREACHABLE
UNREACHED = Reachability.UNREACHED


def test_an_endpoint_nobody_tried_is_unknown() -> None:
    assert ConnectionRecord().state is UNKNOWN


def test_one_connection_makes_an_endpoint_reachable() -> None:
    record = ConnectionRecord()
    assert record.succeeded()
    assert record.state is UP
    assert not record.succeeded()


def test_failures_speak_only_when_there_are_enough_in_a_row() -> None:
    record = ConnectionRecord()
    record.succeeded()
    changes = [record.failed() for _ in range(UNREACHABLE_AFTER + 1)]
    assert changes == [False] * (UNREACHABLE_AFTER - 1) + [True, False]
    assert record.state is DOWN


def test_a_connection_between_failures_starts_the_count_anew() -> None:
    record = ConnectionRecord()
    for _ in range(10):
        for _ in range(UNREACHABLE_AFTER - 1):
            record.failed()
        record.succeeded()
    assert record.state is UP


def test_an_endpoint_comes_back_with_its_first_connection() -> None:
    record = ConnectionRecord()
    for _ in range(UNREACHABLE_AFTER):
        record.failed()
    assert record.succeeded()
    assert record.state is UP


def test_an_endpoint_that_was_never_reached_is_in_doubt_from_the_first_failure_on() -> None:
    record = ConnectionRecord()
    found = [(record.failed(), record.state) for _ in range(UNREACHABLE_AFTER + 1)]
    in_doubt = [(False, UNREACHED)] * (UNREACHABLE_AFTER - 2)
    assert found == [(True, UNREACHED), *in_doubt, (True, DOWN), (False, DOWN)]
    assert record.succeeded()
    record.failed()
    assert record.state is UP
