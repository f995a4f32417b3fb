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
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from extproc import grpc_transport, h2_transport
from extproc.desk import Desk
from extproc.transport import Observer
from tidegate import addresses
from tidegate.config import MAX_BODY_BYTES, Control
from tidegate.runtime import credentials

STOP_SECONDS = 1.0
"""How long what is being answered may go on after the stop; nothing should take longer than a decision."""

FAREWELL_SECONDS = 0.25
"""The same for the streams that Envoy holds open as long as it lives: time to tell it that they are over, and for it to
send the log entries that it has gathered, for 0.1 s."""


class BindError(Exception):
    """A port could not be bound; one line for each."""


class _Counted(Desk, Observer, Protocol):
    """A desk that counts streams as well."""


class Health:
    """What health checks are answered with. It changes nothing but that: Envoy then asks others, if there are any."""

    def __init__(self, *, serving: bool = True) -> None:
        self.serving = serving
        self.changed = asyncio.Event()

    def say(self, *, serving: bool) -> None:
        """Answer with SERVING or NOT_SERVING from now on."""
        self.serving = serving
        self.changed.set()


@contextlib.asynccontextmanager
async def ext_proc(
    control: Control,
    port: int,
    desk: _Counted,
    inflows: h2_transport.Inflows = MappingProxyType({}),
    state: Health | None = None,
) -> AsyncIterator[None]:
    """Serve ``desk`` to Envoy on ``port``, on the transport that ``control`` names; with h2 ``inflows`` too.

    Health checks are answered with ``state``, which is SERVING unless it is given.

    Raises:
        BindError: the port cannot be bound.
    """
    address, state = control.address, state or Health()
    if control.ext_proc_transport == "grpc":
        async with grpc_server(control, port, (grpc_transport.handler(desk, desk),), STOP_SECONDS, state):
            yield
        return
    serving = h2_transport.serving(
        *(address, port, desk, desk, inflows),
        max_body_bytes=MAX_BODY_BYTES,
        grace=STOP_SECONDS,
        healthy=lambda: state.serving,
        tls=None if control.tls is None else credentials.for_asyncio(control.tls),
    )
    async with contextlib.AsyncExitStack() as listening:
        try:
            await listening.enter_async_context(serving)
        except OSError:
            raise _taken(address, port) from None
        yield


@contextlib.asynccontextmanager
async def grpc_server(
    control: Control,
    port: int,
    handlers: tuple[grpc.GenericRpcHandler, ...],
    grace: float,
    state: Health | None = None,
) -> AsyncIterator[None]:
    """Run a gRPC server with ``handlers`` and the standard health service, which says what ``state`` does.

    At the end it says that it serves no more, and its calls get ``grace`` seconds.

    Raises:
        BindError: ``port`` on the address of ``control`` cannot be bound.
    """
    server = grpc.aio.server(options=grpc_transport.server_options(MAX_BODY_BYTES))
    server.add_generic_rpc_handlers(handlers)
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    try:
        place = addresses.joined(control.address, port)
        if control.tls is None:
            server.add_insecure_port(place)
        else:
            server.add_secure_port(place, credentials.for_grpc(control.tls))
    except RuntimeError:
        raise _taken(control.address, port) from None
    await server.start()
    announcing = asyncio.ensure_future(_announce(state or Health(), healthy))
    try:
        yield
    finally:
        announcing.cancel()
        await healthy.enter_graceful_shutdown()
        await server.stop(grace)


async def _announce(state: Health, healthy: health.aio.HealthServicer) -> None:
    """Answer as ``state`` says, until cancelled."""
    states = health_pb2.HealthCheckResponse
    while True:
        state.changed.clear()
        await healthy.set("", states.SERVING if state.serving else states.NOT_SERVING)
        await state.changed.wait()


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
