"""The intake of Envoy's gRPC access log: a stream of batches in, one call per entry out.

Envoy keeps one stream open for as long as it lives, and batches entries on it. So nothing that a single entry brings
may end it: what cannot be read, or fails further on, is counted, and logged the first time it happens.
"""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from protos.access_log_pb2 import AccessLogType, HTTPAccessLogEntry, StreamAccessLogsMessage
from tidegate.telemetry.endings import FailedAttempts
from tidegate.telemetry.log import event
from tidegate.telemetry.record import RequestRecord, parse

SERVICE, METHOD = "envoy.service.accesslog.v3.AccessLogService", "StreamAccessLogs"
PATH = f"/{SERVICE}/{METHOD}"
LOG_NAME = "tidegate"
"""The ``log_name`` of our own logger in Envoy's configuration; streams of any other name are read and dropped."""

_ATTEMPT, _LAST = AccessLogType.UpstreamEnd, AccessLogType.DownstreamEnd

logger = logging.getLogger(__name__)


class Intake:
    """Hands the entries of all streams on, whatever transport they come by."""

    def __init__(
        self,
        on_end: Callable[[RequestRecord], None],
        on_progress: Callable[[RequestRecord], None],
        on_malformed: Callable[[], None],
    ) -> None:
        """Prepare to read.

        Args:
            on_end: called once for each request that is over.
            on_progress: called for each sign of life of a request that still runs.
            on_malformed: called for each message, entry or call of the above that came to nothing.
        """
        self._on_end = on_end
        self._on_progress = on_progress
        self._on_malformed = on_malformed
        self._logged: set[str] = set()

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the service, for a ``grpc.aio`` server."""
        # Without serializers the handler gets and gives raw bytes: a broken message must not end the stream.
        method: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(self._stream)
        return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})

    async def _stream(self, messages: AsyncIterator[bytes], context: Any) -> bytes:  # noqa: ARG002
        """Read one stream to its end; the answer is an empty ``StreamAccessLogsResponse``."""
        read = self.reader()
        async for raw in messages:
            read(raw)
        return b""

    def reader(self) -> Callable[[bytes], None]:
        """Return what reads the messages of one stream, in order; it raises nothing."""
        name: str | None = None
        attempts = FailedAttempts()

        def read(raw: bytes) -> None:
            nonlocal name
            try:
                message = StreamAccessLogsMessage.FromString(raw)
            except DecodeError:
                self._failed("unreadable message")
                return
            # Only the first message says whose stream this is.
            if message.HasField("identifier"):
                name = message.identifier.log_name
            if name == LOG_NAME:
                for entry in message.http_logs.log_entry:
                    if entry.common_properties.access_log_type == _ATTEMPT:
                        attempts.note(entry)
                    else:
                        self._take(entry, attempts)
            elif name is None:
                self._failed("stream without a name")

        return read

    def _take(self, entry: HTTPAccessLogEntry, attempts: FailedAttempts) -> None:
        over = entry.common_properties.access_log_type == _LAST
        record = parse(entry, attempts.before_the_last(entry) if over else ())
        if record.malformed:
            self._failed("unreadable entry")
        try:
            (self._on_end if record.ended else self._on_progress)(record)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not cost the entries after this one
            self._failed("failed entry", error)

    def _failed(self, kind: str, error: Exception | None = None) -> None:
        try:
            self._on_malformed()
        except Exception as failure:  # noqa: BLE001  likewise
            self._log("failed count", failure)
        self._log(kind, error)

    def _log(self, kind: str, error: Exception | None) -> None:
        if kind not in self._logged:
            self._logged.add(kind)
            event(logger, "access log: said once, counted every time", level=logging.ERROR, error=error, kind=kind)
