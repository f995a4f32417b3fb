"""The account of what the endpoint picker sent on: from streams to reservations and figures."""

from collections.abc import Callable

from extproc.picker_gateway import Picked, Settings
from tidegate.config import Config
from tidegate.fleet.events import FleetEvent, RequestEnded, RequestProgressed, RequestReserved
from tidegate.fleet.evidence import Ending
from tidegate.scheduling.dispatch import Decision
from tidegate.telemetry.endings import of_status
from tidegate.telemetry.outcome import Outcome
from tidegate.telemetry.record import NO_USAGE, RequestRecord, Usage


class PickedRequests:
    """Keeps the requests that are with the gateway, one for each open stream."""

    def __init__(self, apply: Callable[[FleetEvent], None], record: Callable[[RequestRecord], None]) -> None:
        """Tell facts to ``apply``, and of each request that is over to ``record``."""
        self.settings = Settings()
        self._apply = apply
        self._record = record
        self._open: set[str] = set()
        self._held = 0
        self._max_held = 0

    def configure(self, config: Config) -> None:
        """Take requests by ``config`` from now on."""
        self.settings = Settings(
            max_body_bytes=config.limits.max_body_bytes,
            decision_seconds=config.limits.decision_timeout_seconds,
            obey_tests=config.picker.test_header == "obey",
        )
        self._max_held = config.picker.max_held_bytes

    def hold(self, change: int) -> bool:
        """Take note that so many bytes more (less, if negative) are held; return whether they may be."""
        self._held += change
        return self._held <= self._max_held

    def sent(self, reservation_id: str) -> None:
        """Keep a reservation alive from now on."""
        self._open.add(reservation_id)

    def renew(self) -> None:
        """Keep all reservations alive whose streams are open."""
        for reservation_id in self._open:
            self._apply(RequestProgressed(reservation_id))

    def served_by(self, decision: Decision, address: str) -> None:
        """Count a request where it is really served."""
        reservation = decision.reservation
        if reservation.id in self._open:
            self._apply(RequestEnded(reservation.id))
            self._apply(RequestReserved(reservation._replace(address=address)))

    def ended(self, picked: Picked) -> None:
        """Release what was reserved, and count the request."""
        self._open.discard(picked.decision.reservation.id)
        record = _record(picked)
        self._apply(RequestEnded(record.reservation, record.usage.completion_tokens, ending=_ending(picked)))
        self._record(record)


def _record(picked: Picked) -> RequestRecord:
    request, decision = picked.request, picked.decision
    return RequestRecord(
        reservation=decision.reservation.id,
        request_id=picked.request_id,
        pool=decision.pool,
        model=request.model,
        api=request.api,
        stream=request.stream,
        estimated_prompt_tokens=request.prompt.tokens,
        count_source=request.prompt.source.value,
        uncorrected_prompt_tokens=request.prompt.uncorrected,
        status=picked.status,
        outcome=_outcome(picked),
        served=picked.served or None,
        named=decision.addresses[0],
        # The gateway does not say how often it tried; an answer shows that it did.
        attempts=1 if picked.status else 0,
        duration_seconds=picked.seconds,
        ttft_seconds=picked.first_token_seconds,
        upstream_ttft_seconds=None,
        usage=_usage(picked),
        tells_usage=picked.usage.value != NO_USAGE,
        failed_open=False,
        ended=True,
        malformed=False,
    )


def _usage(picked: Picked) -> Usage:
    """Return what the engine counted, as far as it said so; of an answer that broke off it may be too little."""
    if picked.answer is None:
        return Usage()
    told = picked.answer.tokens
    return Usage(told.prompt, told.completion, told.cached, told.reasoning)


def _ending(picked: Picked) -> Ending | None:
    """Return how it ended at its endpoint; ``None`` where that is not known, as of who broke an answer off."""
    if not picked.status or not picked.whole:
        return None
    return of_status(picked.status, failed=picked.answer is not None and picked.answer.failed)


def _outcome(picked: Picked) -> Outcome:
    """Return how a request ended, as far as its stream tells: who broke an answer off, it does not."""
    if not picked.status or not picked.whole:
        return Outcome.UNKNOWN
    failed = picked.answer is not None and picked.answer.failed
    if picked.status >= 500 or picked.status == 429 or (failed and picked.status < 400):
        return Outcome.UPSTREAM_ERROR
    return Outcome.CLIENT_ERROR if picked.status >= 400 else Outcome.OK
