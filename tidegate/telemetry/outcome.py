"""How a request ended, in one word: derived from Envoy's status code, response flags and number of attempts.

The first line that holds decides:

=====================  ==============================================================================================
outcome                when
=====================  ==============================================================================================
``running``            the entry is not the last of its request
``timeout``            Envoy ended the stream because nothing but comments came
``client_gone``        flag DC or DR: the client left before the answer's end, whatever had gone wrong by then
``refused``            we were asked, reserved nothing, and answered 400 or more ourselves
``timeout``            flag UT, SI, DT or UMSDR, or details that say so: silence or a deadline, anybody's
``unavailable``        flag UH, UO, NR, NC or OM: Envoy had nowhere to send it, or no room
``upstream_error``     flag UF, UC, UR, UPE or LR: no connection, or the answer broke off (also after a 200)
``client_error``       flag DPE: the client broke the protocol
``unknown``            no status at all, and no flag that says why
``undecided``          500 or more with no attempt upstream: Envoy had no decision it could follow, and failed closed
``upstream_error``     500 or more, or 429: the engine is at fault or full (TGI answers 429 when it is full)
``client_error``       any other 400 to 499
``upstream_error``     the answer says that it failed, whatever its status (seen in pools with ``usage: stream`` alone)
``ok``                 all else, an answer of our own (the list of models) among it
=====================  ==============================================================================================

URX (retries used up) is in no line: the last attempt's status says what was wrong. After a retry that went well Envoy
shows no flag of the attempts before it.
"""

import enum
from typing import Final

from protos.access_log_pb2 import ResponseFlags


class Outcome(enum.Enum):
    """How a request ended; the table is above."""

    OK = "ok"
    CLIENT_ERROR = "client_error"
    CLIENT_GONE = "client_gone"
    REFUSED = "refused"
    UNDECIDED = "undecided"
    UNAVAILABLE = "unavailable"
    UPSTREAM_ERROR = "upstream_error"
    TIMEOUT = "timeout"
    RUNNING = "running"
    UNKNOWN = "unknown"


_NONE: Final = frozenset[str]()
_CLIENT_GONE = frozenset({"downstream_connection_termination", "downstream_remote_reset"})
_BY_FLAG = (
    (
        Outcome.TIMEOUT,
        frozenset(
            {
                "upstream_request_timeout",
                "stream_idle_timeout",
                "duration_timeout",
                "upstream_max_stream_duration_reached",
            }
        ),
    ),
    (
        Outcome.UNAVAILABLE,
        frozenset(
            {"no_healthy_upstream", "upstream_overflow", "no_route_found", "no_cluster_found", "overload_manager"}
        ),
    ),
    (
        Outcome.UPSTREAM_ERROR,
        frozenset(
            {
                "upstream_connection_failure",
                "upstream_connection_termination",
                "upstream_remote_reset",
                "upstream_protocol_error",
                "local_reset",
            }
        ),
    ),
    (Outcome.CLIENT_ERROR, frozenset({"downstream_protocol_error"})),
)


DEADLINE_DETAILS = "max_duration_timeout"
"""How Envoy says that the whole request took longer than it may. Envoy 1.40 raises no flag then (measured)."""


def classify(
    status: int,
    flags: ResponseFlags,
    *,
    attempts: int,
    refused: bool,
    failed: bool = False,
    stalled: bool = False,
    details: str = "",
) -> Outcome:
    """Return how a request ended that is over.

    Args:
        status: the HTTP status sent to the client; 0 when none was sent.
        flags: Envoy's response flags.
        attempts: how often Envoy turned to an endpoint.
        refused: we were asked and reserved nothing.
        failed: the answer itself says that the request failed.
        stalled: Envoy ended it because nothing but comments came.
        details: Envoy's response code details.
    """
    if stalled:
        return Outcome.TIMEOUT
    raised = {field.name for field, _ in flags.ListFields()} if flags.ByteSize() else _NONE
    if raised & _CLIENT_GONE:
        return Outcome.CLIENT_GONE
    if refused and status >= 400:
        return Outcome.REFUSED
    if details == DEADLINE_DETAILS:
        return Outcome.TIMEOUT
    if raised:
        for outcome, names in _BY_FLAG:
            if raised & names:
                return outcome
    outcome = _by_status(status, attempts)
    return Outcome.UPSTREAM_ERROR if outcome is Outcome.OK and failed else outcome


def _by_status(status: int, attempts: int) -> Outcome:
    if status == 0:
        return Outcome.UNKNOWN
    if status >= 500:
        return Outcome.UPSTREAM_ERROR if attempts else Outcome.UNDECIDED
    if status >= 400:
        return Outcome.UPSTREAM_ERROR if status == 429 else Outcome.CLIENT_ERROR
    return Outcome.OK
