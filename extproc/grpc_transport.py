"""The exchange over grpc.aio: reading, writing, and the status with which a stream ends."""

import functools
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

from extproc import transport
from extproc.desk import Desk
from extproc.exchange import Abandoned
from extproc.transport import ENVELOPE_BYTES, METHOD, SERVICE, Begin, Ending, Observer, OneDecision, Status

_CODES = {code.value[0]: code for code in grpc.StatusCode}

STREAMS_PER_CONNECTION = 10_000
"""Open streams that a peer may have on one connection; without a limit, one peer can take all memory."""

WAITING_STREAMS = 100_000
"""Streams that may wait to be taken up: as many as Envoy may have open."""


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
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        ("grpc.server.max_pending_requests", WAITING_STREAMS),
        ("grpc.server.max_pending_requests_hard_limit", WAITING_STREAMS),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
    )


Context = grpc.aio.ServicerContext[bytes, bytes]


def handler(desk: Desk, observer: Observer, begin: Begin = OneDecision) -> grpc.GenericRpcHandler:
    """Return the service, for ``server.add_generic_rpc_handlers``; ``begin`` says what is held on a stream."""

    async def process(_: Any, context: Context) -> None:
        await serve(desk, observer, context, begin)

    # No deserialiser: the handler gets the bytes.
    method: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(process)
    return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})


async def serve(desk: Desk, observer: Observer, context: Context, begin: Begin = OneDecision) -> None:
    """Serve one stream to its end."""
    ending = await transport.serve(_Messages(context), functools.partial(_write, context), begin(desk), observer)
    if ending.status is not Status.OK:
        await _abort(context, ending)


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


async def _abort(context: Context, ending: Ending) -> None:
    """End the stream with an error.

    Raises:
        AbortError: always, unless the stream is dead already; grpc.aio knows it for what it is.
    """
    try:
        await context.abort(_CODES[ending.status], ending.details)
    except grpc.aio.AbortError:
        raise
    except grpc.aio.BaseError:
        return
