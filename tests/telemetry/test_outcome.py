"""How a request ended: one test for each line of the table, and for the order of its lines."""

import pytest

from protos.access_log_pb2 import ResponseFlags
from tidegate.telemetry.outcome import Outcome, classify


def outcome(status: int, *flags: str, attempts: int = 1, refused: bool = False) -> Outcome:
    raised = ResponseFlags(**dict.fromkeys(flags, True))
    return classify(status, raised, attempts=attempts, refused=refused)


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("downstream_connection_termination", Outcome.CLIENT_GONE),
        ("downstream_remote_reset", Outcome.CLIENT_GONE),
        ("upstream_request_timeout", Outcome.TIMEOUT),
        ("stream_idle_timeout", Outcome.TIMEOUT),
        ("duration_timeout", Outcome.TIMEOUT),
        ("upstream_max_stream_duration_reached", Outcome.TIMEOUT),
        ("no_healthy_upstream", Outcome.UNAVAILABLE),
        ("upstream_overflow", Outcome.UNAVAILABLE),
        ("no_route_found", Outcome.UNAVAILABLE),
        ("no_cluster_found", Outcome.UNAVAILABLE),
        ("overload_manager", Outcome.UNAVAILABLE),
        ("upstream_connection_failure", Outcome.UPSTREAM_ERROR),
        ("upstream_connection_termination", Outcome.UPSTREAM_ERROR),
        ("upstream_remote_reset", Outcome.UPSTREAM_ERROR),
        ("upstream_protocol_error", Outcome.UPSTREAM_ERROR),
        ("local_reset", Outcome.UPSTREAM_ERROR),
        ("downstream_protocol_error", Outcome.CLIENT_ERROR),
    ],
)
@pytest.mark.parametrize("status", [0, 200, 503])
def test_a_flag_says_more_than_the_status(flag: str, expected: Outcome, status: int) -> None:
    assert outcome(status, flag, attempts=0) is expected


@pytest.mark.parametrize("status", [0, 200, 504])
def test_a_deadline_that_passed_shows_in_the_details_alone(status: int) -> None:
    none = ResponseFlags()
    assert classify(status, none, attempts=1, refused=False, details="max_duration_timeout") is Outcome.TIMEOUT
    assert classify(status, none, attempts=1, refused=False, details="via_upstream") is not Outcome.TIMEOUT


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, Outcome.OK),
        (204, Outcome.OK),
        (302, Outcome.OK),
        (400, Outcome.CLIENT_ERROR),
        (404, Outcome.CLIENT_ERROR),
        (413, Outcome.CLIENT_ERROR),
        (429, Outcome.UPSTREAM_ERROR),
        (500, Outcome.UPSTREAM_ERROR),
        (503, Outcome.UPSTREAM_ERROR),
        (0, Outcome.UNKNOWN),
    ],
)
def test_without_flags_the_status_decides(status: int, expected: Outcome) -> None:
    assert outcome(status) is expected


@pytest.mark.parametrize("status", [500, 503, 504])
def test_a_server_error_without_an_attempt_is_a_decision_that_never_came(status: int) -> None:
    assert outcome(status, attempts=0) is Outcome.UNDECIDED


@pytest.mark.parametrize("status", [400, 404, 429, 503])
def test_our_own_errors_are_refusals_whatever_their_status(status: int) -> None:
    assert outcome(status, attempts=0, refused=True) is Outcome.REFUSED


def test_a_client_that_left_is_gone_whatever_else_went_wrong() -> None:
    flags = ("downstream_connection_termination", "upstream_request_timeout", "upstream_remote_reset")
    assert outcome(200, *flags) is Outcome.CLIENT_GONE
    assert outcome(0, *flags, refused=True) is Outcome.CLIENT_GONE


def test_used_up_retries_end_as_the_last_attempt_did() -> None:
    assert outcome(503, "upstream_retry_limit_exceeded", attempts=3) is Outcome.UPSTREAM_ERROR
    assert outcome(503, "upstream_retry_limit_exceeded", "no_healthy_upstream", attempts=3) is Outcome.UNAVAILABLE
