"""What listens: gRPC servers and the admin pages, each for as long as a block of code runs."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from types import MappingProxyType
from typing import Protocol

import grpc
import grpc.aio
from aiohttp import web
from grpc_health.v1 import health as grpc_health
from grpc_health.v1 import health_pb2, health_pb2_grpc

from extproc import grpc_transport, h2_transport
from extproc.desk import Desk
from extproc.health import Health
from extproc.transport import Begin, Observer, OneDecision
from tidegate import addresses
from tidegate.config_control import Control
from tidegate.config_limits import MAX_BODY_BYTES
from tidegate.config_tls import ServerTls
from tidegate.runtime import authorization, credentials

STOP_SECONDS = 1.0
"""How long what is being answered may go on after the stop; nothing should take longer than a decision."""

FAREWELL_SECONDS = 0.25
"""The same for the streams that Envoy holds open as long as it lives: time to tell it that they are over, and for it to
send the log entries that it has gathered."""


MAX_TOLD_BYTES = 33_554_432
"""The largest message that is not a request's body: twice what Envoy gathers of its log (``xds.access_log``)."""


class BindError(Exception):
    """A port could not be bound, or a folder cannot be used; one line for each."""


class _Counted(Desk, Observer, Protocol):
    """A desk that counts streams as well."""


@contextlib.asynccontextmanager
async def ext_proc(
    control: Control,
    port: int,
    desk: _Counted,
    *,
    inflows: h2_transport.Inflows = MappingProxyType({}),
    begin: Begin = OneDecision,
    health: Health | None = None,
    grace: float = STOP_SECONDS,
) -> AsyncIterator[None]:
    """Serve ``desk`` to Envoy on ``port``, on the transport that ``control`` names; with h2 ``inflows`` too.

    ``begin`` says what is held on a stream, ``health`` what health checks are answered with (SERVING unless it is
    given), and ``grace`` how many seconds those streams get that are open at the end.

    Raises:
        BindError: the port cannot be bound.
    """
    address, health = control.address, health or Health()
    if control.ext_proc_transport == "grpc":
        handlers = (grpc_transport.handler(desk, desk, begin),)
        async with grpc_server(address, port, handlers, grace, health, control.tls, MAX_BODY_BYTES):
            yield
        return
    serving = h2_transport.serving(
        *(address, port, desk, desk, inflows),
        max_body_bytes=MAX_BODY_BYTES,
        grace=grace,
        begin=begin,
        health=health,
        tls=None if control.tls is None else credentials.for_asyncio(control.tls),
        admits=authorization.admits(control.tls),
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
    health: Health | None = None,
    tls: ServerTls | None = None,
    max_bytes: int = MAX_TOLD_BYTES,
) -> AsyncIterator[None]:
    """Run a gRPC server with ``handlers`` and the standard health service, which says what ``health`` does.

    Who may call what is as ``tls`` says.
    A message may have about ``max_bytes``. At the end it says that it serves no more, and its calls get ``grace``
    seconds.

    Raises:
        BindError: ``port`` on ``address`` cannot be bound.
    """
    asking = authorization.interceptors(tls)
    server = grpc.aio.server(interceptors=asking, options=grpc_transport.server_options(max_bytes))
    server.add_generic_rpc_handlers(handlers)
    servicer = grpc_health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    try:
        place = addresses.joined(address, port)
        if tls is None:
            server.add_insecure_port(place)
        else:
            server.add_secure_port(place, credentials.for_grpc(tls))
    except RuntimeError:
        raise _taken(address, port) from None
    await server.start()
    announcing = asyncio.ensure_future(_announce(health or Health(), servicer))
    try:
        yield
    finally:
        announcing.cancel()
        await servicer.enter_graceful_shutdown()
        await server.stop(grace)


async def _announce(health: Health, servicer: grpc_health.aio.HealthServicer) -> None:
    """Say what ``health`` says, and again with every change, for ever."""
    states = health_pb2.HealthCheckResponse
    while True:
        health.changed.clear()
        for name in health.names:
            await servicer.set(name, states.SERVING if health.serving else states.NOT_SERVING)
        await health.changed.wait()


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
