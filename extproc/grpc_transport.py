"""The exchange over grpc.aio: reading, writing, and the status with which a stream ends."""

import asyncio
import contextlib
import enum
import logging
from collections.abc import Sequence
from typing import Any, Protocol

import grpc
import grpc.aio

from extproc.desk import Desk
from extproc.exchange import Abandoned, exchange
from extproc.stream import PeerProtocolError, Phase, Stream

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
METHOD = "Process"

STREAM_SECONDS = 900.0
"""The longest that a stream may take, an upload's time included. Envoy gives up long before, and then cancels the
stream; this is for an Envoy that does not."""

ENVELOPE_BYTES = 1_048_576
"""What a message may hold besides the body: headers, attributes, metadata."""

WAITING_STREAMS = 100_000
"""Streams that may wait to be taken up: as many as Envoy may have open."""

_log = logging.getLogger(__name__)


def server_options(max_body_bytes: int) -> Sequence[tuple[str, int]]:
    """Return the options of a server for requests of up to ``max_body_bytes``.

    - gRPC takes 4 MiB by default; a larger body would be a 500 for the client.
    - gRPC lets 1000 streams wait to be taken up, and cancels further ones at random: a burst would be met with 503.
    - Without SO_REUSEPORT, two programs on one port are an error at the start and not a riddle later.
    - The keepalive notices an Envoy that vanished without a word, and cancels what it had open.
    - Envoy pings an idle connection every second or two, to notice the same of us. By default gRPC calls that abuse and
      closes the connection with "too many pings" (measured: every eight seconds).
    """
    return (
        ("grpc.max_receive_message_length", max_body_bytes + ENVELOPE_BYTES),
        ("grpc.server.max_pending_requests", WAITING_STREAMS),
        ("grpc.server.max_pending_requests_hard_limit", WAITING_STREAMS),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
    )


class Outcome(enum.Enum):
    """How a stream ended."""

    FINISHED = "finished"
    """A decision or a refusal was delivered."""
    CANCELLED = "cancelled"
    """Envoy ended it before it had a decision or a refusal, mostly because the client left."""
    FAILED = "failed"
    """It ended with an error status."""


class Observer(Protocol):
    """Counts streams. Neither method may raise."""

    def stream_started(self) -> None:
        """Take note of a stream that Envoy opened."""
        ...

    def stream_ended(self, outcome: Outcome) -> None:
        """Take note of its end; called once for each that was started."""
        ...


Context = grpc.aio.ServicerContext[bytes, bytes]


def handler(desk: Desk, observer: Observer) -> grpc.GenericRpcHandler:
    """Return the service, for ``server.add_generic_rpc_handlers``."""

    async def process(_: Any, context: Context) -> None:
        await serve(desk, observer, context)

    # No deserialiser: the handler gets the bytes.
    method: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(process)
    return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})


async def serve(desk: Desk, observer: Observer, context: Context) -> None:
    """Serve one stream to its end. It ends with OK only when its last reply was written."""
    observer.stream_started()
    outcome = Outcome.FAILED
    stream = Stream()
    try:
        async with (
            asyncio.timeout(STREAM_SECONDS),
            contextlib.aclosing(exchange(_Messages(context), desk, stream)) as replies,
        ):
            async for reply in replies:
                await _write(context, reply)
        outcome = Outcome.FINISHED
    except asyncio.CancelledError:
        outcome = Outcome.FINISHED if stream.phase is Phase.ANSWERING else Outcome.CANCELLED
        raise
    except Abandoned:
        outcome = Outcome.FINISHED if stream.phase is Phase.ANSWERING else Outcome.CANCELLED
        await _abort(context, grpc.StatusCode.CANCELLED, "the stream was ended before the decision")
    except PeerProtocolError as error:
        _log.warning("Envoy does not keep to the protocol", extra={"fields": {"reason": str(error)}})
        await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, f"unexpected: {error}")
    except TimeoutError:
        _log.warning("a stream took too long", extra={"fields": {"seconds": STREAM_SECONDS}})
        await _abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, "the stream took too long")
    except Exception as error:  # noqa: BLE001  whatever went wrong, the stream must not end with OK
        # The class alone: a message might quote the request.
        _log.error("a stream failed", extra={"fields": {"error": type(error).__name__}})
        await _abort(context, grpc.StatusCode.INTERNAL, "the decision failed")
    finally:
        observer.stream_ended(outcome)


class _Messages:
    """The messages of a stream, as an iterator that has nothing to close."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __aiter__(self) -> "_Messages":
        return self

    async def __anext__(self) -> bytes:
        message: object = await self._context.read()
        if not isinstance(message, bytes):  # grpc.aio.EOF
            raise StopAsyncIteration
        return message


async def _write(context: Context, reply: bytes) -> None:
    try:
        await context.write(reply)
    except grpc.aio.BaseError:
        # The stream is dead, and the cancellation that says so has not reached us yet.
        raise Abandoned from None


async def _abort(context: Context, code: grpc.StatusCode, details: str) -> None:
    """End the stream with an error.

    Raises:
        AbortError: always, unless the stream is dead already; grpc.aio knows it for what it is.
    """
    try:
        await context.abort(code, details)
    except grpc.aio.AbortError:
        raise
    except grpc.aio.BaseError:
        return
