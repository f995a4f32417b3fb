"""What listens: gRPC servers and the admin pages, each for as long as a block of code runs."""

import contextlib
import os
from collections.abc import AsyncIterator, Collection
from typing import Protocol

import grpc
import grpc.aio
from aiohttp import web
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from extproc import grpc_transport, h2_transport
from extproc.desk import Desk
from extproc.transport import Begin, Observer, OneDecision
from tidegate import addresses
from tidegate.config import MAX_BODY_BYTES, Control

STOP_SECONDS = 1.0
"""How long what is being answered may go on after the stop; nothing should take longer than a decision."""

FAREWELL_SECONDS = 0.1
"""The same for the streams that Envoy holds open as long as it lives: time to tell it that they are over."""


class BindError(Exception):
    """A port could not be bound; one line for each."""


class _Counted(Desk, Observer, Protocol):
    """A desk that counts streams as well."""


@contextlib.asynccontextmanager
async def ext_proc(
    control: Control,
    desk: _Counted,
    begin: Begin = OneDecision,
    *,
    grace: float = STOP_SECONDS,
    healthy: Collection[str] = ("",),
) -> AsyncIterator[None]:
    """Serve ``desk`` to Envoy, on the transport that ``control`` names.

    ``begin`` says what is held on a stream, ``grace`` how many seconds those get that are open at the end, and
    ``healthy`` by which names health is asked for.

    Raises:
        BindError: the port cannot be bound.
    """
    address, port = control.address, control.ext_proc_port
    if control.ext_proc_transport == "grpc":
        async with grpc_server(address, port, (grpc_transport.handler(desk, desk, begin),), grace, healthy):
            yield
        return
    serving = h2_transport.serving(
        *(address, port, desk, desk), max_body_bytes=MAX_BODY_BYTES, grace=grace, begin=begin, healthy=healthy
    )
    async with contextlib.AsyncExitStack() as listening:
        try:
            await listening.enter_async_context(serving)
        except OSError:
            raise _taken(address, port) from None
        yield


@contextlib.asynccontextmanager
async def grpc_server(
    address: str,
    port: int,
    handlers: tuple[grpc.GenericRpcHandler, ...],
    grace: float,
    healthy: Collection[str] = ("",),
) -> AsyncIterator[None]:
    """Run a gRPC server with ``handlers`` and the standard health service, which knows the names in ``healthy``.

    At the end it says that it serves no more, and its calls get ``grace`` seconds.

    Raises:
        BindError: ``port`` on ``address`` cannot be bound.
    """
    server = grpc.aio.server(options=grpc_transport.server_options(MAX_BODY_BYTES))
    server.add_generic_rpc_handlers(handlers)
    health_service = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_service, server)
    try:
        server.add_insecure_port(addresses.joined(address, port))
    except RuntimeError:
        raise _taken(address, port) from None
    await server.start()
    for name in healthy:
        await health_service.set(name, health_pb2.HealthCheckResponse.SERVING)
    try:
        yield
    finally:
        await health_service.enter_graceful_shutdown()
        await server.stop(grace)


def _taken(address: str, port: int) -> BindError:
    return BindError(f"cannot bind {address}:{port} (control): is it taken already?")


@contextlib.asynccontextmanager
async def site(app: web.Application, address: str, port: int) -> AsyncIterator[None]:
    """Serve ``app``, without a log line for each request.

    Raises:
        BindError: ``port`` on ``address`` cannot be bound.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, address, port).start()
        except OSError as error:
            raise BindError(f"cannot bind {address}:{port} (admin.port): {os.strerror(error.errno or 0)}") from None
        yield
    finally:
        await runner.cleanup()
