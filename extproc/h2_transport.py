"""Envoy's gRPC services over HTTP/2 on asyncio: the same as over grpc.aio, for less than half of the CPU time.

The exchange, gRPC's health check, and streams on which messages only come.

A server owns everything that it starts: its connections, a task per stream that has to wait, and the task that looks
after quiet peers. When ``serving`` ends, all of it has ended.
"""

import asyncio
import contextlib
import functools
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from grpc_health.v1 import health_pb2

from extproc import transport
from extproc.desk import Desk
from extproc.exchange import Abandoned
from extproc.h2_begun import begin
from extproc.h2_connection import Connection
from extproc.h2_inflow import Inflow, Reader
from extproc.h2_interfaces import Call, Finish, Wire
from extproc.h2_stream import MessageStream
from extproc.health import Health
from extproc.transport import (
    ENVELOPE_BYTES,
    METHOD,
    SERVICE,
    Begin,
    Ending,
    Exchange,
    Observer,
    OneDecision,
    Status,
    UnreadableMessage,
)

CONNECTIONS = 1_024
"""Connections at a time; Envoy has one or two per worker."""

STREAMS = 20_000
"""Streams at a time, on all connections. One more is refused, which tells Envoy that it was not looked at."""

HELD_BYTES = 2_147_483_648
"""What may be held at a time of messages that are incomplete or not taken up yet, on all streams together. The stream
that would exceed it is ended."""

CHECK_SECONDS = 1.0
"""Pause between two looks at the connections."""

HEALTH_SECONDS = 10.0
"""How long a health check may take to be asked and answered."""

DRAIN_POLL_SECONDS = 0.01

LAST_MESSAGES_SECONDS = 0.25
"""How long inflows are read after the last exchange has ended: Envoy gathers log entries for 0.02 s."""

_PROCESS = f"/{SERVICE}/{METHOD}".encode()
_HEALTH = b"/grpc.health.v1.Health/Check"

Inflows = Mapping[str, Callable[[], Reader]]
"""Methods (``/package.Service/Method``) to which messages only come; each gives a new stream its reader."""

_Serve = Callable[[MessageStream, Finish], Coroutine[Any, Any, None]]

_log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def serving(
    address: str,
    port: int,
    desk: Desk,
    observer: Observer,
    inflows: Inflows | None = None,
    *,
    max_body_bytes: int,
    grace: float,
    begin: Begin = OneDecision,
    health: Health | None = None,
    tls: ssl.SSLContext | None = None,
    admits: Callable[[ssl.SSLObject], bool] | None = None,
) -> AsyncIterator[int]:
    """Serve ``desk`` and ``inflows`` on ``address`` and ``port`` (0: any free one); give the port.

    ``begin`` says what is held on a stream, and ``health`` what health checks are answered with. At the end that is
    NOT_SERVING, nothing is accepted any more, and streams that are open get ``grace`` seconds; then inflows are told to
    go elsewhere, and have half a second more. With ``tls``, a peer that does not agree to speak h2 over it is not
    served, and to one that ``admits`` says no to every call is denied.

    Raises:
        OSError: the port cannot be bound.
    """
    server = Server(desk, observer, max_body_bytes + ENVELOPE_BYTES, inflows or {}, begin, health, admits)
    loop = asyncio.get_running_loop()
    # Without SO_REUSEPORT, two programs on one port are an error at the start and not a riddle later.
    listening = await loop.create_server(
        lambda: Connection(server), address, port, ssl=tls, reuse_port=False, backlog=1024, start_serving=False
    )
    fault: BaseException | None = None
    async with asyncio.TaskGroup() as tasks:
        server.start(tasks)
        await listening.start_serving()
        sweep = tasks.create_task(server.sweep())
        try:
            yield listening.sockets[0].getsockname()[1]
        except BaseException as error:  # noqa: BLE001  raised below: not our tasks' fault, and not one of their group
            fault = error
        listening.close()
        await server.drain(grace)
        sweep.cancel()
        server.abort()
    if fault is not None:
        raise fault


class Server:
    """What the connections of one port share."""

    def __init__(
        self,
        desk: Desk,
        observer: Observer,
        max_message_bytes: int,
        inflows: Inflows,
        begin: Begin = OneDecision,
        health: Health | None = None,
        admits: Callable[[ssl.SSLObject], bool] | None = None,
    ) -> None:
        """Serve ``desk``, which takes messages of up to ``max_message_bytes``; the rest as for ``serving``."""
        self._max_message_bytes = max_message_bytes
        self._inflows = {path.encode(): reader for path, reader in inflows.items()}
        self._desk = desk
        self._observer = observer
        self._connections: set[Connection] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._streams = 0
        self._lasting = 0
        self._held = 0
        self._full = False
        self._draining = False
        self._begin = begin
        self._admits = admits
        self._health = health = health or Health()
        # An empty name may be written, or left out.
        asked = {health_pb2.HealthCheckRequest(service=name).SerializeToString() for name in health.names}
        self._known = asked | ({b"\x0a\x00"} if "" in health.names else set())

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._connections)

    @property
    def streams(self) -> int:
        """How many streams are being served."""
        return self._streams

    @property
    def held(self) -> int:
        """How many bytes of messages are held."""
        return self._held

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Let ``tasks`` own every stream's task."""
        self._tasks = tasks

    async def sweep(self) -> None:
        """Look after quiet peers, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for connection in tuple(self._connections):
                connection.check(loop.time())

    async def drain(self, grace: float) -> None:
        """Ask every peer to go, and give it ``grace`` seconds; then end what is still open."""
        self._draining = True
        deadline = asyncio.get_running_loop().time() + grace
        for connection in tuple(self._connections):
            connection.drain()
        await _until(lambda: self._streams == self._lasting, deadline)
        if self._lasting:
            await asyncio.sleep(LAST_MESSAGES_SECONDS)
            deadline += 2 * LAST_MESSAGES_SECONDS
            for connection in tuple(self._connections):
                connection.drain_streams()
        await _until(lambda: not self._connections, deadline)
        for connection in tuple(self._connections):
            connection.stop()
        # One turn, for what was just written to leave.
        await asyncio.sleep(0)

    def abort(self) -> None:
        """Break off the connections whose peers do not take what was written."""
        for connection in tuple(self._connections):
            connection.abort()

    # -- ``Host``

    def joined(self, connection: Connection) -> bool:
        """Take in ``connection``; return whether it may stay."""
        if self._draining or len(self._connections) >= CONNECTIONS:
            if not self._draining and not self._full:
                self._full = True
                _log.warning("too many connections; further ones are closed", extra={"fields": {"limit": CONNECTIONS}})
            return False
        self._connections.add(connection)
        return True

    def admits(self, peer: ssl.SSLObject) -> bool:
        """Return whether ``peer`` may call anything."""
        return self._admits is None or self._admits(peer)

    def left(self, connection: Connection) -> None:
        """Forget it."""
        if connection in self._connections:
            self._connections.remove(connection)
            self._full = False

    def has_room(self) -> bool:
        """Return whether one more stream may be opened."""
        return self._streams < STREAMS

    def hold(self, change: int) -> bool:
        """Take note that so many bytes more (less, if negative) are held; return whether they all may be."""
        self._held += change
        return change <= 0 or self._held <= HELD_BYTES

    def begin(self, path: bytes, wire: Wire, stream_id: int, finish: Finish) -> Call | None:
        """Serve a new stream by the method at ``path``; ``None`` when there is none."""
        if self._tasks is None:
            return None
        if (reader := self._inflows.get(path)) is not None:
            self._streams += 1
            self._lasting += 1
            return Call(Inflow(wire, stream_id, reader(), finish, self._inflow_over))
        if path == _PROCESS:
            held = self._begin(self._desk)
            serve: _Serve = functools.partial(self._process, held)
            at_once = held.at_once
        elif path == _HEALTH:
            serve, at_once = self._check_health, False
        else:
            return None
        stream = MessageStream(wire, stream_id, self._max_message_bytes)
        call = Call(stream, functools.partial(self._serve, self._tasks, serve, stream, finish, at_once), self._over)
        self._streams += 1
        if at_once:
            stream.when_readable(call.start)
        else:
            call.start()
        return call

    def _serve(
        self,
        tasks: asyncio.TaskGroup,
        serve: _Serve,
        stream: MessageStream,
        finish: Finish,
        at_once: bool,
        call: Call,
    ) -> None:
        """Serve the stream of ``call``: without a task as far as that goes, if it can do without for a while."""

        def go_on(rest: Coroutine[Any, Any, None]) -> None:
            call.task = tasks.create_task(rest)
            call.task.add_done_callback(self._over)

        coroutine = serve(stream, finish)
        if not at_once:
            go_on(coroutine)
            return
        over = True
        try:
            over = begin(coroutine, go_on)
        finally:
            if over:
                self._over()

    def _over(self, _: asyncio.Task[None] | None = None) -> None:
        self._streams -= 1

    def _inflow_over(self) -> None:
        self._streams -= 1
        self._lasting -= 1

    async def _process(self, held: Exchange, stream: MessageStream, finish: Finish) -> None:
        stream.limit(held.seconds)
        finish(stream, await transport.serve(stream, stream.write, held, self._observer, stream))

    async def _check_health(self, stream: MessageStream, finish: Finish) -> None:
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                ending = await self._answer_health(stream)
        except UnreadableMessage as unreadable:
            ending = unreadable.ending
        except (Abandoned, TimeoutError):
            ending = Ending(Status.CANCELLED, "not asked to the end")
        except Exception as error:  # noqa: BLE001  no fault in here may be the end of the streams of others
            _log.error("a health check failed", extra={"fields": {"error": type(error).__name__}})
            ending = Ending(Status.INTERNAL, "the health check failed")
        finish(stream, ending)

    async def _answer_health(self, stream: MessageStream) -> Ending:
        """Answer like the health service of gRPC, for the names that are known; the whole server's is empty."""
        message = await anext(stream, None)
        if message is None:
            return Ending(Status.INTERNAL, "a message was expected")
        if message not in self._known:
            return Ending(Status.NOT_FOUND, "unknown service")
        states = health_pb2.HealthCheckResponse
        state = states.SERVING if self._health.serving and not self._draining else states.NOT_SERVING
        await stream.write(states(status=state).SerializeToString())
        return Ending(Status.OK)


async def _until(condition: Callable[[], bool], deadline: float) -> None:
    """Wait for ``condition``, at most until the event loop's clock says ``deadline``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            while not condition():  # noqa: ASYNC110  once in a process's life; nobody else wants to know
                await asyncio.sleep(DRAIN_POLL_SECONDS)
