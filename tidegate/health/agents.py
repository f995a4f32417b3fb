"""Receiving the reports of GPU agents: one gRPC stream for each, one receipt for each report.

With TLS an agent may speak only for the node that its certificate names. Without TLS whoever reaches the port may speak
for any node: the port then belongs where only agents can reach it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn, Protocol

import grpc
import grpc.aio

from protos.gpu_health_pb2 import Receipt
from tidegate.health import identity
from tidegate.health.decode import MalformedError, decoded
from tidegate.health.registry import Intake, Registry
from tidegate.health.reported import Report

SERVICE: Final = "tidegate.health.v1.GpuHealth"
METHOD: Final = "Report"

MAX_REPORT_BYTES = 512 * 1024
"""64 GPUs with all that is kept of each."""

IDLE_SECONDS = 120.0
"""A stream that brings nothing for so long is ended; agents report at least once a minute."""

GAP_SECONDS = 0.05
"""Reports of one stream are taken no faster."""

_log = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[bytes, bytes]


class Observer(Protocol):
    """Who wants to know."""

    def reported(self, report: Report, now: float) -> None:
        """Learn what a node says; the registry has it already."""
        ...

    def refused(self, reason: str) -> None:
        """Count a report that changed nothing: ``stale``, ``full``, ``identity``, ``malformed`` or ``streams``."""
        ...

    def silent(self, node: str) -> None:
        """Learn that a node's stream ended. That is no word about the node: its last report simply grows older."""
        ...


class AgentService:
    """Takes what agents report into ``registry``."""

    def __init__(
        self,
        registry: Registry,
        observer: Observer,
        *,
        authenticated: bool,
        max_streams: int = 20_000,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tell ``observer`` of each report; ``authenticated``: certificates name nodes (the server has TLS)."""
        self._registry = registry
        self._observer = observer
        self._authenticated = authenticated
        self._max_streams = max_streams
        self._now = now
        self._open = 0
        # The stream that speaks for each node: the newest, as an agent comes back before its old stream is noticed.
        self._speaking: dict[str, object] = {}

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the service, for ``server.add_generic_rpc_handlers``."""

        async def report(_: Any, context: _Context) -> None:
            await self._serve(context)

        method: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(report)
        return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})

    async def _serve(self, context: _Context) -> None:
        if self._open >= self._max_streams:
            await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "streams", "too many streams")
        self._open += 1
        stream = _Stream()
        try:
            while (data := await self._next(context)) is not None:
                await self._take(data, stream, context)
                await asyncio.sleep(GAP_SECONDS)
        finally:
            self._open -= 1
            if stream.node and self._speaking.get(stream.node) is stream:
                del self._speaking[stream.node]
                self._observer.silent(stream.node)

    async def _next(self, context: _Context) -> bytes | None:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                message: object = await context.read()
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no report for too long")
        return message if isinstance(message, bytes) else None  # grpc.aio.EOF

    async def _take(self, data: bytes, stream: "_Stream", context: _Context) -> None:
        codes = grpc.StatusCode
        if len(data) > MAX_REPORT_BYTES:
            await self._refuse(context, codes.RESOURCE_EXHAUSTED, "malformed", "a report is too large")
        try:
            report = decoded(data)
        except MalformedError as error:
            await self._refuse(context, codes.INVALID_ARGUMENT, "malformed", str(error))
        if stream.node is None:
            if not self._may_speak(context, report.node):
                said = "the certificate does not name this node"
                await self._refuse(context, codes.PERMISSION_DENIED, "identity", said, node=report.node)
            stream.node = report.node
            self._speaking[report.node] = stream
        if report.node != stream.node:
            said = "a stream speaks for one node"
            await self._refuse(context, codes.PERMISSION_DENIED, "identity", said, node=stream.node)
        if self._speaking.get(stream.node) is not stream:
            await context.abort(codes.ABORTED, "another stream speaks for this node")
        now = self._now()
        match self._registry.take(report, now):
            case Intake.TAKEN:
                self._observer.reported(report, now)
            case Intake.STALE:
                self._observer.refused("stale")
            case Intake.FULL:
                await self._refuse(context, codes.RESOURCE_EXHAUSTED, "full", "too many nodes", node=report.node)
        await context.write(Receipt(sequence=report.sequence).SerializeToString())

    def _may_speak(self, context: _Context, node: str) -> bool:
        if not self._authenticated:
            return True
        names = context.auth_context().get("x509_subject_alternative_name", ())
        return node in identity.nodes(names)

    async def _refuse(
        self, context: _Context, code: grpc.StatusCode, reason: str, said: str, node: str = ""
    ) -> NoReturn:
        self._observer.refused(reason)
        _log.warning("a GPU agent is refused", extra={"fields": {"reason": said, "node": node}})
        await context.abort(code, said)
        raise AssertionError("unreachable: abort raises")


class _Stream:
    """One stream, and the node that it speaks for once it has said so."""

    def __init__(self) -> None:
        self.node: str | None = None
