"""How attempts ended at their endpoints, read out of log entries."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos import access_log_pb2 as pb
from tests.telemetry.entries import entry
from tidegate.fleet.evidence import Ending
from tidegate.telemetry import access_log
from tidegate.telemetry.endings import MAX_ATTEMPTS, MAX_REMEMBERED, UNREAD_BYTES, Attempt, FailedAttempts
from tidegate.telemetry.outcome import Outcome
from tidegate.telemetry.record import RequestRecord, parse

PICK, OTHER = "10.0.0.1:8000", "10.0.0.2:8000"


def ended(
    status: int = 200,
    *flags: str,
    host: str = PICK,
    noted: dict[str, Any] | None = None,
    details: str = "via_upstream",
    begun: bool = True,
    request: str = "q",
    **changes: Any,
) -> pb.HTTPAccessLogEntry:
    """Return the end of a request at ``host``."""
    tags = {"host": host} | ({"ttft_us": "5000", "upstream_ttft_us": "5000"} if begun else {})
    made = entry(status=status, flags=flags, tags=tags, **changes)
    made.response.response_code_details = details
    made.request.request_id = request
    if noted is not None:
        made.common_properties.metadata.filter_metadata["tidegate_ending"].update(noted)
    return made


def attempt(status: int, *flags: str, said: str = "", host: str = PICK, request: str = "q") -> pb.HTTPAccessLogEntry:
    """Return what is logged of one attempt that failed."""
    made = ended(status, *flags, host=host, request=request, kind=pb.UpstreamEnd, attempts=0, decision=None)
    made.response.response_headers["x-tidegate-ending"] = said
    return made


@pytest.mark.parametrize(
    ("made", "ending"),
    [
        (ended(200), Ending.SERVED),
        (ended(200, noted={"stalled": "true"}), Ending.STALLED),
        (ended(200, "stream_idle_timeout", noted={"stalled": "true"}), Ending.STALLED),
        (ended(200, "downstream_connection_termination", noted={"stalled": "true"}), Ending.STALLED),
        (ended(400), Ending.NEUTRAL),
        (ended(404), Ending.NEUTRAL),
        (ended(413), Ending.NEUTRAL),
        (ended(424), Ending.SERVER_ERROR),
        (ended(429), Ending.BUSY),
        (ended(429, noted={"said": "other"}), Ending.BUSY),
        (ended(500), Ending.SERVER_ERROR),
        (ended(500, noted={"said": "other"}), Ending.SERVER_ERROR),
        (ended(500, noted={"said": "busy"}), Ending.SERVER_ERROR),
        (ended(500, noted={"said": "engine_dead"}), Ending.ENGINE_DEAD),
        (ended(500, noted={"said": "out_of_memory"}), Ending.OUT_OF_MEMORY),
        (ended(501), Ending.NEUTRAL),
        (ended(502), Ending.SERVER_ERROR),
        (ended(503), Ending.SERVER_ERROR),
        (ended(503, noted={"said": "busy"}), Ending.BUSY),
        (ended(503, noted={"said": "engine_dead"}), Ending.ENGINE_DEAD),
        (ended(503, "upstream_retry_limit_exceeded", noted={"said": "busy"}), Ending.BUSY),
        (ended(200, noted={"said": "engine_dead"}), Ending.SERVED),  # of an attempt before
        (ended(200, noted={"broken": "other", "code": "500"}), Ending.BROKEN_ANSWER),
        (ended(200, noted={"broken": "other", "code": ""}), Ending.BROKEN_ANSWER),
        (ended(200, noted={"broken": "engine_dead", "code": "500"}), Ending.ENGINE_DEAD),
        (ended(200, noted={"broken": "busy", "code": "503"}), Ending.BUSY),
        (ended(200, noted={"broken": "busy", "code": ""}), Ending.BUSY),
        (ended(200, noted={"broken": "other", "code": "400"}), Ending.NEUTRAL),
        (ended(200, noted={"broken": "other", "code": "200"}), Ending.BROKEN_ANSWER),
        (ended(200, answer={"failed": True}), Ending.BROKEN_ANSWER),
        (ended(200, "downstream_connection_termination"), Ending.NEUTRAL),
        (ended(0, "downstream_remote_reset"), Ending.NEUTRAL),
        (ended(503, "upstream_connection_failure", details="x"), Ending.UNCONNECTED),
        (ended(503, "upstream_connection_failure", "upstream_retry_limit_exceeded"), Ending.UNCONNECTED),
        (ended(503, "upstream_connection_termination"), Ending.RESET),
        (ended(200, "upstream_protocol_error"), Ending.RESET),
        (ended(200, "upstream_remote_reset"), Ending.RESET),
        (ended(200, "stream_idle_timeout"), Ending.STALLED),
        (ended(200, "stream_idle_timeout", size=UNREAD_BYTES), Ending.NEUTRAL),
        (ended(504, "stream_idle_timeout", begun=False), Ending.TIMED_OUT),
        (ended(504, "upstream_request_timeout", begun=False), Ending.TIMED_OUT),
        (ended(504, "duration_timeout"), Ending.NEUTRAL),
        (ended(504, "upstream_max_stream_duration_reached"), Ending.NEUTRAL),
        (ended(504, details="max_duration_timeout"), Ending.NEUTRAL),
        (ended(200, "local_reset"), Ending.NEUTRAL),
        (ended(503, details="lua_response"), None),
        (ended(503, attempts=0), None),
        (ended(200, host="-"), None),
        (ended(200, host="pipe"), None),
        (ended(0), None),
    ],
)
def test_the_last_attempt_ended_as_the_request_did(made: pb.HTTPAccessLogEntry, ending: Ending | None) -> None:
    record = parse(made)
    assert record.tried == (() if ending is None else (Attempt(PICK, ending),))
    assert record.ending_at_pick is ending


def read(*entries: pb.HTTPAccessLogEntry) -> list[RequestRecord]:
    """Return the records that come of a stream of ``entries``."""
    records: list[RequestRecord] = []
    intake = access_log.Intake(records.append, lambda _: None, pytest.fail)
    message = pb.StreamAccessLogsMessage()
    message.identifier.log_name = access_log.LOG_NAME
    message.http_logs.log_entry.extend(entries)
    intake.reader()(message.SerializeToString())
    return records


def test_whoever_leaves_because_nothing_but_comments_came_did_not_leave_by_himself() -> None:
    made = ended(200, "downstream_connection_termination", noted={"stalled": "true"})
    assert parse(made).outcome is Outcome.TIMEOUT


def test_attempts_that_failed_belong_to_the_end_of_their_request() -> None:
    one, other = read(
        attempt(503, said="busy", host=PICK),
        attempt(0, "upstream_connection_failure", host="10.0.0.9:1", request="p"),
        attempt(0, "upstream_connection_termination", host=OTHER),
        ended(200, host="10.0.0.3:8000", attempts=3),
        ended(200, request="p", attempts=2),
    )
    assert one.tried == (
        Attempt(PICK, Ending.BUSY),
        Attempt(OTHER, Ending.RESET),
        Attempt("10.0.0.3:8000", Ending.SERVED),
    )
    assert one.ending_at_pick is Ending.BUSY
    assert one.elsewhere == one.tried[1:]
    assert other.elsewhere == other.tried[:1]
    assert other.tried == (Attempt("10.0.0.9:1", Ending.UNCONNECTED), Attempt(PICK, Ending.SERVED))


def test_the_last_attempt_counts_once_though_it_may_be_logged_as_an_attempt_too() -> None:
    (record,) = read(attempt(503, said="busy"), ended(503, noted={"said": "busy"}, attempts=1))
    assert record.tried == (Attempt(PICK, Ending.BUSY),)
    first, second = read(
        ended(503, noted={"said": "busy"}), attempt(503, said="busy"), ended(200, attempts=1, request="other")
    )
    assert (first.tried, second.tried) == ((Attempt(PICK, Ending.BUSY),), (Attempt(PICK, Ending.SERVED),))


def test_an_engine_that_died_and_said_so_is_dead_also_when_another_served() -> None:
    (record,) = read(attempt(500, said="engine_dead"), ended(200, host=OTHER, attempts=2))
    assert record.ending_at_pick is Ending.ENGINE_DEAD


def test_failed_attempts_are_not_remembered_without_end() -> None:
    attempts = FailedAttempts()
    for number in range(MAX_REMEMBERED + 1):
        for _ in range(MAX_ATTEMPTS + 5):
            attempts.note(attempt(503, request=str(number)))
    assert attempts.before_the_last(ended(200, request="0", attempts=3)) == ()
    assert len(attempts.before_the_last(ended(200, request="1", attempts=99))) == MAX_ATTEMPTS
    assert attempts.before_the_last(ended(200, request="1", attempts=99)) == ()


@pytest.mark.parametrize("odd", [lambda e: e.request.Clear(), lambda e: e.common_properties.custom_tags.clear()])
def test_an_attempt_of_nobody_or_at_nothing_is_passed_over(odd: Callable[[pb.HTTPAccessLogEntry], None]) -> None:
    made = attempt(503)
    odd(made)
    assert read(made, ended(200, attempts=2))[0].tried == (Attempt(PICK, Ending.SERVED),)


NOTED = st.dictionaries(
    st.sampled_from(["said", "broken", "code"]), st.one_of(st.text(max_size=5), st.floats(), st.booleans(), st.none())
)
FLAGS = st.lists(st.sampled_from([field.name for field in pb.ResponseFlags.DESCRIPTOR.fields]), unique=True)


@given(
    status=st.integers(0, 2**32 - 1),
    flags=FLAGS,
    noted=NOTED,
    host=st.text(max_size=30),
    attempts=st.integers(0, 9),
    last=st.booleans(),
)
def test_whatever_an_entry_holds_it_is_read(
    *, status: int, flags: list[str], noted: dict[str, Any], host: str, attempts: int, last: bool
) -> None:
    made = ended(
        status, *flags, host=host, noted=noted, attempts=attempts, kind=pb.DownstreamEnd if last else pb.UpstreamEnd
    )
    assert len(read(made)) == last
