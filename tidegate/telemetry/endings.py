"""How each attempt at a request ended at its endpoint, as far as that says something of the endpoint.

Envoy logs an attempt that failed by itself, and how the last one ended with the end of its request. The first line
that holds decides on the last one:

=====================  ==============================================================================================
ending                 when
=====================  ==============================================================================================
``stalled``            Envoy ended the stream because nothing but comments came
``neutral``            flag DC or DR: the client left; flag DT or UMSDR, or details that say so: the request's time was
                       up; any other flag but those below: Envoy ended it
``unconnected``        flag UF
``stalled``            flag SI or UT, and the answer's body had begun; ``neutral`` where so much had come that it may
                       have been the client who did not read
``timed_out``          flag SI or UT, and nothing had come
``reset``              flag UC, UR or UPE: the connection ended, or carried what is no HTTP
nothing                the answer is not the endpoint's
``busy``               429, or 503 with words such as ``currently busy``
``out_of_memory``      500 and above with words that say so; so ``engine_dead``
``neutral``            501, and all below 500 but 424 (TGI: generation failed)
``server_error``       all other errors: 503 without such words too, and those that nobody read
``broken_answer``      a stream with an error in it, where that would not be one of the above by its code and words
``served``             all else
=====================  ==============================================================================================
"""

import functools
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from google.protobuf.struct_pb2 import Value

from protos.access_log_pb2 import AccessLogCommon, HTTPAccessLogEntry, ResponseFlags
from tidegate import addresses
from tidegate.fleet.error_texts import Said
from tidegate.fleet.evidence import Ending
from tidegate.telemetry.outcome import DEADLINE_DETAILS

NAMESPACE: Final = "tidegate_ending"
"""Dynamic metadata in which Envoy notes what engines said: said, broken and code; and stalled."""
HEADER: Final = "x-tidegate-ending"
"""On the answer of one attempt, what its error said."""
HOST_TAG: Final = "host"
"""Custom tag: the endpoint that an attempt turned to."""

MAX_REMEMBERED: Final = 4096
"""Requests with failed attempts whose end is awaited, on one stream of the log."""

MAX_ATTEMPTS: Final = 16
"""Attempts that are remembered of one request."""

UNREAD_BYTES: Final = 524_288
"""An answer of which so much was sent may stand still because its client does not read: Envoy then stops reading it."""

_VIA_UPSTREAM = "via_upstream"
_ENDINGS = {
    Said.ENGINE_DEAD.value: Ending.ENGINE_DEAD,
    Said.OUT_OF_MEMORY.value: Ending.OUT_OF_MEMORY,
    Said.BUSY.value: Ending.BUSY,
}
_NO_FACTS: Mapping[str, Value] = {}


class Attempt(NamedTuple):
    """How one attempt at a request ended, at the endpoint ``address`` (``ip:port``)."""

    address: str
    ending: Ending


class FailedAttempts:
    """The attempts that failed of requests that go on, on one stream of the log: a bounded memory."""

    def __init__(self) -> None:
        """Begin with none."""
        self._by_request: OrderedDict[str, list[Attempt]] = OrderedDict()

    def note(self, entry: HTTPAccessLogEntry) -> None:
        """Remember the attempt that ``entry`` tells of."""
        common, request = entry.common_properties, entry.request.request_id
        address, ending = _host(common), of_attempt(entry)
        if not request or address is None or ending is None:
            return
        attempts = self._by_request.setdefault(request, [])
        if len(attempts) < MAX_ATTEMPTS:
            attempts.append(Attempt(address, ending))
        if len(self._by_request) > MAX_REMEMBERED:
            self._by_request.popitem(last=False)

    def before_the_last(self, entry: HTTPAccessLogEntry) -> tuple[Attempt, ...]:
        """Return and forget those of the request that ``entry`` ends, without its last attempt."""
        if not self._by_request:
            return ()
        attempts = self._by_request.pop(entry.request.request_id, ())
        before = entry.common_properties.upstream_request_attempt_count - 1
        return tuple(attempts[: max(0, before)])


def of_attempt(entry: HTTPAccessLogEntry) -> Ending | None:
    """Return how the attempt ended that ``entry`` tells of."""
    flags, answer = entry.common_properties.response_flags, entry.response
    status = answer.response_code.value
    by_flag = _by_flag(flags, begun=bool(status), sent=0) if flags.ByteSize() else None
    return by_flag or (_by_status(status, answer.response_headers.get(HEADER, "")) if status else None)


def of_last(entry: HTTPAccessLogEntry, *, begun: bool, failed: bool) -> Attempt | None:
    """Return how the last attempt ended at the request that ``entry`` ends; ``None`` where there was none.

    Args:
        entry: the last of its request.
        begun: the answer's body had begun.
        failed: who read the answer found an error in it.
    """
    common, answer = entry.common_properties, entry.response
    address = _host(common)
    if address is None or not common.upstream_request_attempt_count:
        return None
    status, details = answer.response_code.value, answer.response_code_details
    ending: Ending | None = None
    if stalled(entry):
        ending = Ending.STALLED
    elif common.response_flags.ByteSize():
        ending = _by_flag(common.response_flags, begun=begun, sent=answer.response_body_bytes)
    elif details == DEADLINE_DETAILS:
        ending = Ending.NEUTRAL
    if ending is None and status and details in ("", _VIA_UPSTREAM):
        namespaces = common.metadata.filter_metadata
        noted = namespaces[NAMESPACE].fields if NAMESPACE in namespaces else _NO_FACTS
        ending = _by_answer(status, noted, failed=failed)
    return None if ending is None else Attempt(address, ending)


def stalled(entry: HTTPAccessLogEntry) -> bool:
    """Return whether Envoy ended the stream because nothing but comments came; its client may have left first."""
    namespaces = entry.common_properties.metadata.filter_metadata
    return NAMESPACE in namespaces and "stalled" in namespaces[NAMESPACE].fields


def of_status(status: int, *, failed: bool) -> Ending:
    """Return how a request ended whose answer came to its end, where errors are not read: a 503 may be load.

    Args:
        status: of the answer.
        failed: there was an error in it.
    """
    ending = _by_status(status, Said.BUSY.value)
    return Ending.BROKEN_ANSWER if failed and ending is Ending.SERVED else ending


def _by_flag(flags: ResponseFlags, *, begun: bool, sent: int) -> Ending | None:
    """Return the ending that ``flags`` tell; ``None`` where they tell only that retries are used up."""
    if flags.downstream_connection_termination or flags.downstream_remote_reset or flags.duration_timeout:
        return Ending.NEUTRAL
    if flags.upstream_connection_failure:
        return Ending.UNCONNECTED
    if flags.stream_idle_timeout or flags.upstream_request_timeout:
        if not begun:
            return Ending.TIMED_OUT
        return Ending.STALLED if sent < UNREAD_BYTES else Ending.NEUTRAL
    if flags.upstream_connection_termination or flags.upstream_remote_reset or flags.upstream_protocol_error:
        return Ending.RESET
    alone = ResponseFlags(upstream_retry_limit_exceeded=True)
    return None if flags == alone else Ending.NEUTRAL


def _by_answer(status: int, noted: Mapping[str, Value], *, failed: bool) -> Ending:
    if status >= 400:
        return _by_status(status, noted["said"].string_value if "said" in noted else "")
    if "broken" in noted:
        code = noted["code"].string_value if "code" in noted else ""
        word = noted["broken"].string_value
        unsaid = 503 if word == Said.BUSY.value else 500
        told = int(code) if code.isascii() and code.isdigit() and len(code) == 3 else unsaid
        ending = _by_status(told, word)
        return Ending.BROKEN_ANSWER if ending in (Ending.SERVER_ERROR, Ending.SERVED) else ending
    return Ending.BROKEN_ANSWER if failed else Ending.SERVED


def _by_status(status: int, word: str) -> Ending:
    if status == 429:
        return Ending.BUSY
    if status == 501 or 400 <= status < 500:
        return Ending.SERVER_ERROR if status == 424 else Ending.NEUTRAL
    if status < 400:
        return Ending.SERVED
    ending = _ENDINGS.get(word, Ending.SERVER_ERROR)
    return Ending.SERVER_ERROR if ending is Ending.BUSY and status != 503 else ending


@functools.lru_cache(16_384)
def _place(host: str) -> str | None:
    try:
        return addresses.ip_and_port(host)
    except ValueError:
        return None


def _host(common: AccessLogCommon) -> str | None:
    return _place(common.custom_tags.get(HOST_TAG, ""))
