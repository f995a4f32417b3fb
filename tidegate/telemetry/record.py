"""One request, read out of one entry of Envoy's gRPC access log.

Nothing in an entry is taken for granted: what is missing, odd or of the wrong type is unknown (``None`` or ``""``), and
never zero.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.wrappers_pb2 import UInt64Value

from protos.access_log_pb2 import AccessLogCommon, AccessLogType, HTTPAccessLogEntry
from protos.ai_pb2 import TokenUsage
from protos.core_pb2 import Address, Metadata
from tidegate import addresses
from tidegate.fleet.evidence import Ending
from tidegate.telemetry.endings import Attempt, of_last, stalled
from tidegate.telemetry.outcome import Outcome, classify

DECISION_NAMESPACE = "tidegate"
"""Dynamic metadata that the decision left: reservation, pool, model, api, prompt_tokens, count_source, stream, usage,
and uncorrected_tokens where the engine's count teaches something, read where the answer was to be read."""
DESTINATION_NAMESPACE, DESTINATION_KEY = "envoy.lb", "x-gateway-destination-endpoint"
"""Dynamic metadata that names the endpoints: a list of ``ip:port``, the pick first."""
TTFT_TAG, UPSTREAM_TTFT_TAG = "ttft_us", "upstream_ttft_us"
"""Custom tags in microseconds; ``-`` when the first byte never came."""
ANSWER_NAMESPACE = "tidegate_answer"
"""Dynamic metadata that reading the answer left, in pools with ``usage: stream``: over, failed, bytes, output_tokens,
and prompt_tokens, completion_tokens, cached_tokens and reasoning_tokens where the engine told them."""
OPEN_ROUTE = "/open"
"""What follows the pool's name in the names of the routes of requests that go on without a decision."""
UNREAD_NAMESPACE, UNREAD_KEY = "tidegate.unread", "model"
"""Dynamic metadata in which Envoy leaves the model that it read out of such a request itself."""
NO_USAGE = "none"
"""What ``usage`` says of an API whose answers tell no token usage."""
USAGE_TYPE = "/envoy.data.ai.v3.TokenUsage"
"""How the ``Any`` of Envoy's AI protocol manager is known: our slice bears another package name than the type URL."""

FAILURES = frozenset({Outcome.UPSTREAM_ERROR, Outcome.TIMEOUT})
"""Outcomes that an endpoint is to blame for."""

_LAST_ENTRY, _COMPLETE = AccessLogType.DownstreamEnd, TokenUsage.COMPLETE

MAX_TOKENS = 100_000_000
"""More tokens than any request can have: a larger number is nonsense, and would spoil sums and means for good."""

MAX_BYTES = 1 << 50
"""The same, of an answer's size."""


class Usage(NamedTuple):
    """The engine's own count, in tokens; ``None`` where it said none or Envoy could not read all of the answer."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Read(NamedTuple):
    """How far the answer was read on its way to the client, where it is.

    Attributes:
        over: to its end.
        failed: it said that the request failed.
        bytes: what had been read when that was last told.
        output_tokens: an estimate of what those brought.
    """

    over: bool
    failed: bool
    bytes: int
    output_tokens: int


class RequestRecord(NamedTuple):
    """One request, as far as Envoy's log tells.

    Attributes:
        reservation: id of its reservation; empty when none was made, or Envoy dropped it (the client left just then).
        request_id: the request's ``x-request-id``; empty when it has none.
        pool: where it was sent; empty when unknown. So are ``model``, ``api`` and ``count_source``.
        model: the model's name as the client wrote it.
        api: the API it came by.
        stream: whether a streamed answer was asked for.
        estimated_prompt_tokens: prompt tokens as counted before the decision.
        count_source: how that count came about.
        uncorrected_prompt_tokens: what it was before a learned correction, where it was fit to be compared with usage.
        status: HTTP status sent to the client; 0 when the client left before there was one.
        outcome: how it ended.
        served: ``ip:port`` of the endpoint that answered, or the last one tried; IPv6 in brackets.
        named: ``ip:port`` of the endpoint that was picked.
        attempts: how often Envoy turned to an endpoint; 0 when never.
        duration_seconds: from the request's first byte to the answer's last.
        ttft_seconds: from the request's first byte to the answer body's first, decision and failed attempts included.
            For a streamed answer the time to the first token; for any other the time to the whole answer.
        upstream_ttft_seconds: likewise, from the last attempt's last request byte: the engine's share alone.
        usage: the engine's own count of tokens.
        tells_usage: whether answers by this API tell it.
        to_be_read: whether the answer was to be read on its way to the client.
        read: what came of that; ``None`` where nothing did.
        response_bytes: what was sent of the answer's body.
        estimated_completion_tokens: an estimate, where ``usage`` does not say.
        failed_open: it went to the pool without a decision.
        ended: this is the request's last entry; otherwise it is still running.
        tried: how each attempt ended that says something of its endpoint, in their order.
        malformed: something in the entry could not be read.
    """

    reservation: str
    request_id: str
    pool: str
    model: str
    api: str
    stream: bool | None
    estimated_prompt_tokens: int | None
    count_source: str
    uncorrected_prompt_tokens: int | None
    status: int
    outcome: Outcome
    served: str | None
    named: str | None
    attempts: int
    duration_seconds: float | None
    ttft_seconds: float | None
    upstream_ttft_seconds: float | None
    usage: Usage
    tells_usage: bool
    failed_open: bool
    ended: bool
    malformed: bool
    to_be_read: bool = False
    read: Read | None = None
    response_bytes: int = 0
    estimated_completion_tokens: int | None = None
    tried: tuple[Attempt, ...] = ()

    @property
    def answered(self) -> bool:
        """Whether the answer's status was one of success, however the answer then ended."""
        return 200 <= self.status < 300

    @property
    def output_tokens(self) -> int | None:
        """What was generated, as told or else as estimated."""
        told = self.usage.completion_tokens
        return self.estimated_completion_tokens if told is None else told

    @property
    def final(self) -> bool:
        """Whether what ``usage`` says of the output is known to be of all of it."""
        return self.read is not None and self.read.over

    @property
    def engine_ttft_seconds(self) -> float | None:
        """Seconds from the delivery to the engine to the first token; ``None`` where the answer was not streamed."""
        return self.upstream_ttft_seconds if self.stream else None

    @property
    def engine_seconds(self) -> float | None:
        """Seconds from the delivery to the engine to the last byte; ``None`` when it cannot be told."""
        whole, ttft, upstream = self.duration_seconds, self.ttft_seconds, self.upstream_ttft_seconds
        if whole is None or ttft is None or upstream is None:
            return None
        seconds = whole - ttft + upstream
        return seconds if seconds > 0 else None

    @property
    def ending_at_pick(self) -> Ending | None:
        """How it ended at the endpoint that was picked; ``None`` where that is not known."""
        for attempt in self.tried:
            if attempt.address == self.named:
                return attempt.ending
        return None

    @property
    def elsewhere(self) -> tuple[Attempt, ...]:
        """How attempts ended at other endpoints than that."""
        if self.attempts < 2:
            return ()
        return tuple(attempt for attempt in self.tried if attempt.address != self.named)

    @property
    def failed_by_pick(self) -> bool:
        """Whether the endpoint that was picked failed it, even if another one served it after that."""
        elsewhere = self.served is not None and self.named is not None and self.served != self.named
        return elsewhere or self.outcome in FAILURES

    @property
    def seconds_per_output_token(self) -> float | None:
        """Mean time between the tokens of a streamed answer after the first; ``None`` when it cannot be told."""
        tokens = self.usage.completion_tokens
        if not self.stream or self.duration_seconds is None or self.ttft_seconds is None or tokens is None:
            return None
        generating = self.duration_seconds - self.ttft_seconds
        return generating / (tokens - 1) if tokens > 1 and generating >= 0 else None


def parse(entry: HTTPAccessLogEntry, before: tuple[Attempt, ...] = ()) -> RequestRecord:
    """Read one entry; whatever it holds, this raises nothing.

    Args:
        entry: what Envoy logged.
        before: how the attempts before the last one ended.
    """
    common, response = entry.common_properties, entry.response
    metadata = common.metadata
    namespaces = metadata.filter_metadata
    decision = namespaces.get(DECISION_NAMESPACE)
    facts: Mapping[str, Value] = {} if decision is None else decision.fields
    reservation = _text(facts, "reservation")
    status = response.response_code.value
    ended = common.access_log_type == _LAST_ENTRY
    attempts = common.upstream_request_attempt_count
    usage, readable = _usage(metadata)
    answer = namespaces.get(ANSWER_NAMESPACE)
    read = None if answer is None else _read(answer.fields)
    if answer is not None:
        usage = _overridden(usage, answer.fields)
    opened = _opened(common, decided=decision is not None)
    ttft = _tag(common, TTFT_TAG)
    failed = read is not None and read.failed
    last = of_last(entry, begun=ttft is not None, failed=failed) if ended else None
    return RequestRecord(
        reservation=reservation,
        request_id=entry.request.request_id,
        pool=opened or _text(facts, "pool"),
        model=_text(namespaces[UNREAD_NAMESPACE].fields, UNREAD_KEY) if opened else _text(facts, "model"),
        api=_text(facts, "api"),
        stream=_flag(facts, "stream"),
        estimated_prompt_tokens=_number(facts, "prompt_tokens"),
        count_source=_text(facts, "count_source"),
        uncorrected_prompt_tokens=_number(facts, "uncorrected_tokens"),
        status=status,
        outcome=classify(
            status,
            common.response_flags,
            attempts=attempts,
            refused=decision is not None and not reservation,
            details=response.response_code_details,
            failed=failed,
            stalled=stalled(entry),
        )
        if ended
        else Outcome.RUNNING,
        served=_address(common.upstream_remote_address),
        named=_named(namespaces),
        attempts=attempts,
        duration_seconds=_seconds(common.duration) if common.HasField("duration") else None,
        ttft_seconds=ttft,
        upstream_ttft_seconds=_tag(common, UPSTREAM_TTFT_TAG),
        usage=usage,
        tells_usage=not opened and _text(facts, "usage") != NO_USAGE,
        failed_open=bool(opened),
        ended=ended,
        malformed=not readable,
        to_be_read=_flag(facts, "read") or False,
        read=read,
        response_bytes=response.response_body_bytes,
        tried=before if last is None else (*before, last),
    )


def _opened(common: AccessLogCommon, *, decided: bool) -> str:
    """Return the pool that took a request without a decision; empty for every other request."""
    pool, mark, _ = common.route_name.partition(OPEN_ROUTE)
    return pool if mark and not decided else ""


def _text(facts: Mapping[str, Value], key: str) -> str:
    value = facts.get(key)
    return "" if value is None else value.string_value


def _flag(facts: Mapping[str, Value], key: str) -> bool | None:
    value = facts.get(key)
    return value.bool_value if value is not None and value.HasField("bool_value") else None


def _number(facts: Mapping[str, Value], key: str) -> int | None:
    value = facts.get(key)
    if value is None or not value.HasField("number_value") or not 0 <= value.number_value <= MAX_TOKENS:
        return None
    return int(value.number_value)


def _size(facts: Mapping[str, Value], key: str) -> int:
    value = facts.get(key)
    return 0 if value is None or not 0 <= value.number_value <= MAX_BYTES else int(value.number_value)


def _seconds(duration: Duration) -> float | None:
    seconds = duration.seconds + duration.nanos * 1e-9
    return seconds if seconds >= 0 else None


def _tag(common: AccessLogCommon, name: str) -> float | None:
    text = common.custom_tags.get(name, "-")
    return int(text) / 1e6 if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _address(address: Address) -> str | None:
    socket = address.socket_address
    return _place(socket.address, socket.port_value)


@functools.lru_cache(16_384)
def _place(address: str, port: int) -> str | None:
    """Return ``address`` and ``port`` in their one spelling, 5 us to find; ``None`` for what is no place."""
    try:
        return addresses.joined(addresses.ip(address), port) if port else None
    except ValueError:
        return None


def _named(namespaces: Mapping[str, Struct]) -> str | None:
    destinations = namespaces.get(DESTINATION_NAMESPACE)
    if destinations is None:
        return None
    return _text(destinations.fields, DESTINATION_KEY).partition(",")[0].strip() or None


def _usage(metadata: Metadata) -> tuple[Usage, bool]:
    """Return the usage, and whether what was there could be read."""
    for packed in metadata.typed_filter_metadata.values():
        if packed.type_url.endswith(USAGE_TYPE):
            try:
                usage = TokenUsage.FromString(packed.value)
            except DecodeError:
                return Usage(), False
            return _tokens(usage), True
    return Usage(), True


def _read(facts: Mapping[str, Value]) -> Read:
    return Read(
        over=_flag(facts, "over") or False,
        failed=_flag(facts, "failed") or False,
        bytes=_size(facts, "bytes"),
        output_tokens=_number(facts, "output_tokens") or 0,
    )


def _overridden(usage: Usage, facts: Mapping[str, Value]) -> Usage:
    """Return ``usage`` as Envoy read it, with what was read on the way instead where there is something."""
    ours = Usage(*(_number(facts, name) for name in Usage._fields))
    return Usage(*(before if ours is None else ours for before, ours in zip(usage, ours, strict=True)))


def _tokens(usage: TokenUsage) -> Usage:
    # PARTIAL and FAILED mean that Envoy gave up on the answer: what it has by then may be too little.
    if usage.extraction_status != _COMPLETE:
        return Usage()
    # Nor is it a count that there was nothing at all: some servers end a stream with zeros, and Envoy takes the last.
    if not usage.input_tokens.value and not usage.output_tokens.value:
        return Usage()
    into, out = usage.input_token_details, usage.output_token_details
    return Usage(
        prompt_tokens=_count(usage.input_tokens) if usage.HasField("input_tokens") else None,
        completion_tokens=_count(usage.output_tokens) if usage.HasField("output_tokens") else None,
        cached_tokens=_count(into.cached_tokens) if into.HasField("cached_tokens") else None,
        reasoning_tokens=_count(out.reasoning_tokens) if out.HasField("reasoning_tokens") else None,
    )


def _count(value: UInt64Value) -> int | None:
    return value.value if value.value <= MAX_TOKENS else None
