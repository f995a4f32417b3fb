"""Reading one access-log entry: what is there is read, what is not is unknown."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from protos import access_log_pb2 as pb
from protos.ai_pb2 import TokenUsage
from tests.telemetry.entries import DECISION, TYPE_URL, entry, usage
from tidegate.telemetry.outcome import Outcome
from tidegate.telemetry.record import MAX_TOKENS, Read, Usage, parse


def test_a_good_streamed_answer_is_read_in_full() -> None:
    record = parse(entry(tokens=usage(reasoning=8)))
    assert (record.reservation, record.pool, record.model, record.api) == (
        "r-1",
        "default",
        "llama",
        "chat_completions",
    )
    assert record.stream is True
    assert (record.estimated_prompt_tokens, record.count_source) == (100, "exact")
    assert record.uncorrected_prompt_tokens is None
    assert (record.status, record.outcome, record.attempts) == (200, Outcome.OK, 1)
    assert (record.served, record.named) == ("10.0.0.1:8000", "10.0.0.1:8000")
    assert record.duration_seconds == pytest.approx(2.5)
    assert record.ttft_seconds == pytest.approx(0.5)
    assert record.upstream_ttft_seconds == pytest.approx(0.45)
    assert record.usage == Usage(110, 21, 64, 8)
    assert record.ended
    assert record.answered
    assert not record.malformed


def test_what_was_read_on_the_way_overrides_what_envoy_read() -> None:
    answer = {
        "over": True,
        "failed": False,
        "bytes": 900,
        "output_tokens": 9,
        "prompt_tokens": 5,
        "reasoning_tokens": 3,
    }
    record = parse(entry(decision={**DECISION, "read": True}, tokens=usage(), answer=answer, size=800))
    assert record.usage == Usage(5, 21, 64, 3)
    assert record.read == Read(over=True, failed=False, bytes=900, output_tokens=9)
    assert (record.final, record.to_be_read, record.response_bytes) == (True, True, 800)


def test_zeros_alone_are_no_count() -> None:
    assert parse(entry(tokens=usage(prompt=0, completion=0, cached=0))).usage == Usage()
    assert parse(entry(tokens=usage(prompt=5, completion=0, cached=None))).usage == Usage(5, 0)


def test_an_answer_that_says_it_failed_is_a_failure_whatever_its_status() -> None:
    assert parse(entry(answer={"failed": True})).outcome is Outcome.UPSTREAM_ERROR
    gone = parse(entry(answer={"failed": True}, flags=("downstream_connection_termination",)))
    assert gone.outcome is Outcome.CLIENT_GONE


@pytest.mark.parametrize("odd", [-1, "100", True, None, 1e18])
def test_an_odd_account_of_an_answer_is_unknown(odd: object) -> None:
    names = ("over", "failed", "bytes", "output_tokens", "prompt_tokens", "completion_tokens")
    record = parse(entry(answer=dict.fromkeys(names, odd)))
    assert record.usage == Usage()
    assert record.read is not None
    assert (record.read.bytes, record.read.output_tokens) == (0, 0)


def test_a_corrected_count_is_read_as_it_is_and_as_it_was() -> None:
    decision = {**DECISION, "prompt_tokens": 130, "count_source": "learned", "uncorrected_tokens": 100}
    record = parse(entry(decision=decision))
    assert (record.estimated_prompt_tokens, record.count_source) == (130, "learned")
    assert record.uncorrected_prompt_tokens == 100


@pytest.mark.parametrize("odd", [-1, "100", True, None, 1e12])
def test_an_odd_uncorrected_count_is_unknown(odd: object) -> None:
    record = parse(entry(decision={**DECISION, "uncorrected_tokens": odd}))
    assert record.uncorrected_prompt_tokens is None


def test_an_empty_entry_is_unknown_throughout_and_never_zero() -> None:
    record = parse(pb.HTTPAccessLogEntry())
    assert record.reservation == record.pool == record.model == record.api == ""
    assert record.stream is record.estimated_prompt_tokens is None
    assert record.served is record.named is None
    assert record.duration_seconds is record.ttft_seconds is record.upstream_ttft_seconds is None
    assert record.usage == Usage(None, None, None, None)
    assert record.seconds_per_output_token is None
    assert not record.ended
    assert not record.malformed


def test_an_empty_last_entry_has_an_unknown_outcome() -> None:
    assert parse(entry(decision=None, destinations=None, status=0, served=None)).outcome is Outcome.UNKNOWN


def test_a_periodic_entry_is_a_request_that_still_runs() -> None:
    record = parse(entry(kind=pb.DownstreamPeriodic, seconds=None))
    assert record.outcome is Outcome.RUNNING
    assert not record.ended
    assert record.reservation == "r-1"
    assert record.ttft_seconds == pytest.approx(0.5)


def test_a_client_that_leaves_before_the_headers_has_status_zero() -> None:
    record = parse(
        entry(status=0, flags=("downstream_connection_termination",), tags={"ttft_us": "-", "upstream_ttft_us": "-"})
    )
    assert (record.status, record.outcome) == (0, Outcome.CLIENT_GONE)
    assert record.ttft_seconds is record.upstream_ttft_seconds is None
    assert not record.answered


@pytest.mark.parametrize("status", [TokenUsage.PARTIAL, TokenUsage.FAILED, TokenUsage.EXTRACTION_STATUS_UNSPECIFIED, 9])
def test_usage_that_is_not_complete_is_unknown(status: TokenUsage.ExtractionStatus) -> None:
    assert parse(entry(tokens=usage(status=status))).usage == Usage()


def test_parts_of_the_usage_may_be_missing() -> None:
    assert parse(entry(tokens=usage(completion=None, cached=None))).usage == Usage(prompt_tokens=110)


def test_zero_tokens_that_were_reported_are_zero_and_not_unknown() -> None:
    assert parse(entry(tokens=usage(completion=0, cached=0))).usage == Usage(110, 0, 0, None)


def test_an_absurd_number_of_tokens_is_unknown() -> None:
    record = parse(entry(tokens=usage(prompt=MAX_TOKENS + 1, completion=2**64 - 1, cached=MAX_TOKENS)))
    assert record.usage == Usage(None, None, MAX_TOKENS, None)


def test_usage_is_found_in_any_namespace_by_its_type() -> None:
    message = entry()
    typed = message.common_properties.metadata.typed_filter_metadata
    typed["another"].type_url = "type.googleapis.com/google.protobuf.Empty"
    typed["third"].type_url, typed["third"].value = TYPE_URL, usage().SerializeToString()
    assert parse(message).usage.prompt_tokens == 110


def test_typed_metadata_of_another_type_is_not_taken_for_usage() -> None:
    message = entry(tokens=usage())
    message.common_properties.metadata.typed_filter_metadata["ai_usage"].type_url = TYPE_URL + "2"
    record = parse(message)
    assert record.usage == Usage()
    assert not record.malformed


def test_broken_usage_is_unknown_and_says_that_it_was_broken() -> None:
    message = entry(tokens=usage())
    message.common_properties.metadata.typed_filter_metadata["ai_usage"].value = b"\xff\xff\xff"
    record = parse(message)
    assert record.usage == Usage()
    assert record.malformed
    assert record.reservation == "r-1"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (("10.1.2.3", 8000), "10.1.2.3:8000"),
        (("fd00::7", 8000), "[fd00::7]:8000"),
        (("fd00:0:0:0:0:0:0:7", 8000), "[fd00::7]:8000"),
        (("fd00:::7", 8000), None),
        (("10.1.2.3", 0), None),
        (None, None),
    ],
)
def test_the_served_address_is_written_as_the_configuration_writes_it(
    address: tuple[str, int] | None, expected: str | None
) -> None:
    assert parse(entry(served=address)).served == expected


def test_a_pipe_is_no_served_address() -> None:
    message = entry(served=None)
    message.common_properties.upstream_remote_address.pipe.path = "/run/engine.sock"
    assert parse(message).served is None


@pytest.mark.parametrize(
    ("destinations", "expected"),
    [("[fd00::7]:80, 10.0.0.2:8000", "[fd00::7]:80"), (" 10.0.0.2:8000 ", "10.0.0.2:8000"), ("", None), (None, None)],
)
def test_the_named_address_is_the_first_of_the_list(destinations: str | None, expected: str | None) -> None:
    assert parse(entry(destinations=destinations)).named == expected


@pytest.mark.parametrize("tag", ["-", "", "-5", "1.5", "1e3", "²", "9" * 400, "12ms"])
def test_a_time_to_first_token_that_is_no_number_is_unknown(tag: str) -> None:
    assert parse(entry(tags={"ttft_us": tag})).ttft_seconds is None


@pytest.mark.parametrize(
    "facts",
    [
        {"reservation": 5, "pool": None, "model": ["a"], "api": {"a": 1}, "prompt_tokens": "7", "stream": "yes"},
        {"prompt_tokens": -1, "stream": 1, "count_source": False},
        {"prompt_tokens": float("nan")},
        {"prompt_tokens": float("inf")},
    ],
)
def test_metadata_of_the_wrong_type_is_unknown(facts: dict[str, Any]) -> None:
    record = parse(entry(decision=facts))
    assert record.reservation == record.pool == record.model == record.api == record.count_source == ""
    assert record.stream is record.estimated_prompt_tokens is None


def test_a_refusal_is_known_by_a_decision_without_a_reservation() -> None:
    decision = {key: DECISION[key] for key in ("pool", "model", "api")}
    record = parse(entry(decision=decision, destinations=None, status=404, served=None, attempts=0))
    assert record.outcome is Outcome.REFUSED
    assert record.reservation == ""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 2.0 / 20),
        ({"tokens": usage(completion=2)}, 2.0),
        ({"tokens": usage(completion=1)}, None),
        ({"tokens": usage(completion=0)}, None),
        ({"tokens": usage(completion=None)}, None),
        ({"decision": {**DECISION, "stream": False}}, None),
        ({"decision": None}, None),
        ({"seconds": None}, None),
        ({"seconds": 0.4}, None),
        ({"tags": {}}, None),
    ],
)
def test_time_per_output_token_needs_a_streamed_answer_of_two_tokens(
    changes: dict[str, Any], expected: float | None
) -> None:
    measured = parse(entry(**{"tokens": usage(), **changes})).seconds_per_output_token
    assert measured == (None if expected is None else pytest.approx(expected))


def test_a_request_without_a_decision_is_known_by_its_route() -> None:
    record = parse(entry(decision=None, destinations=None, route="big/open/responses", unread="m"))
    assert (record.failed_open, record.pool, record.model, record.reservation) == (True, "big", "m", "")
    assert not parse(entry(route="big/open")).failed_open, "it has a decision"
    assert not parse(entry(decision=None, route="big/closed")).failed_open
    assert not parse(entry(decision=None, route="big")).failed_open


def test_a_negative_duration_is_unknown() -> None:
    assert parse(entry(seconds=-1)).duration_seconds is None


@given(st.binary(max_size=400))
def test_whatever_bytes_make_an_entry_it_is_read_without_an_error(raw: bytes) -> None:
    try:
        message = pb.HTTPAccessLogEntry.FromString(raw)
    except DecodeError:
        return
    parse(message)


_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(sorted(DECISION)), _values), st.text(max_size=12), st.binary(max_size=30))
def test_whatever_the_metadata_holds_the_record_keeps_to_its_types(
    facts: dict[str, Any], tag: str, packed: bytes
) -> None:
    message = entry(decision=facts, tags={"ttft_us": tag})
    typed = message.common_properties.metadata.typed_filter_metadata["ai_usage"]
    typed.type_url, typed.value = TYPE_URL, packed
    record = parse(message)
    assert all(isinstance(text, str) for text in (record.reservation, record.pool, record.model, record.api))
    assert record.stream in {True, False, None}
    assert record.estimated_prompt_tokens is None or 0 <= record.estimated_prompt_tokens <= MAX_TOKENS
    assert record.ttft_seconds is None or record.ttft_seconds >= 0


def test_the_engines_share_of_the_time_leaves_out_the_decision() -> None:
    record = parse(entry(seconds=2.5))
    assert record.engine_ttft_seconds == pytest.approx(0.45)
    assert record.engine_seconds == pytest.approx(2.45)


def test_an_answer_that_is_not_streamed_has_no_first_token_that_could_be_seen() -> None:
    record = parse(entry(decision={**DECISION, "stream": False}))
    assert record.engine_ttft_seconds is None
    assert record.engine_seconds == pytest.approx(2.45)


@pytest.mark.parametrize("tags", [{}, {"ttft_us": "500000"}, {"ttft_us": "9000000", "upstream_ttft_us": "1"}])
def test_the_engines_share_is_unknown_where_a_time_is_missing_or_odd(tags: dict[str, str]) -> None:
    assert parse(entry(tags=tags)).engine_seconds is None


@pytest.mark.parametrize(
    ("served", "status", "flags", "failed"),
    [
        (("10.0.0.1", 8000), 200, (), False),
        (("10.0.0.2", 8000), 200, (), True),
        (("10.0.0.1", 8000), 503, (), True),
        (("10.0.0.1", 8000), 200, ("upstream_connection_termination",), True),
        (("10.0.0.1", 8000), 400, (), False),
        (("10.0.0.1", 8000), 200, ("downstream_connection_termination",), False),
        (None, 0, ("downstream_connection_termination",), False),
    ],
)
def test_the_pick_is_blamed_for_what_it_failed_and_for_what_another_one_served(
    served: tuple[str, int] | None, status: int, flags: tuple[str, ...], failed: bool
) -> None:
    assert parse(entry(served=served, status=status, flags=flags)).failed_by_pick is failed
