"""The discovery services over gRPC."""

import itertools
from collections.abc import Callable
from typing import Any, cast

import grpc

from xds.events import Observe, Refused, StreamClosed
from xds.groups import Groups, for_all
from xds.response import Encoder
from xds.services import SERVICES, Service
from xds.snapshot import Snapshot
from xds.standing import StreamStanding
from xds.stream import ProtocolError, Read, Stream, UnknownNodeError
from xds.turnstile import Turnstile

MAX_STREAMS = 1000
"""Envoys served at once by one process; more are refused, and come again by themselves."""

_Context = grpc.aio.ServicerContext[bytes, bytes]


def _anybody(_: _Context) -> str:
    return ""


class DiscoveryServer:
    """Tells every connected Envoy what it should have, once there is something to tell."""

    def __init__(
        self, observe: Observe, max_streams: int = MAX_STREAMS, named: Callable[[_Context], str] = _anybody
    ) -> None:
        """``observe`` is called for everything that happens; what it raises ends the stream that it happened on.

        ``named`` says which node id the caller must give itself; empty for any.
        """
        self._observe = observe
        self._named = named
        self._max_streams = max_streams
        self._groups: Groups | None = None
        self._streams: dict[int, Stream] = {}
        self._closed = False
        self.refused = 0
        """How many streams were refused because no group of Envoys takes their client, or it is another."""
        self._numbers = itertools.count(1)
        self._encoder = Encoder()
        self._turnstile = Turnstile()

    @property
    def streams(self) -> int:
        """How many clients are connected."""
        return len(self._streams)

    @property
    def up_to_date(self) -> bool:
        """Whether every connected client answered for all that was published."""
        return all(stream.up_to_date for stream in self._streams.values())

    def publish(self, snapshot: Snapshot) -> None:
        """Serve ``snapshot`` to everybody from now on (see ``publish_groups``)."""
        self.publish_groups(for_all(snapshot))

    def publish_groups(self, groups: Groups) -> None:
        """Serve what ``groups`` say from now on; each client is sent what it lacks. Call it in the event loop's thread.

        Raises:
            ValueError: a snapshot names resources that it does not hold; what was published last goes on.
        """
        if missing := groups.consistent():
            raise ValueError("; ".join(missing))
        self._groups = groups
        for stream in self._streams.values():
            stream.publish(groups)

    def standings(self) -> tuple[StreamStanding, ...]:
        """Return how it stands with each client that has said who it is."""
        return tuple(
            StreamStanding(stream.node, stream.incremental, stream.up_to_date, tuple(stream.standing()), stream.group)
            for stream in self._streams.values()
            if stream.opened
        )

    def close(self) -> None:
        """End every stream, and take no more: Envoy never ends its own, and keeps what it has when we do."""
        self._closed = True
        for stream in self._streams.values():
            stream.close()

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return the services' handlers, for ``Server.add_generic_rpc_handlers``. They take and give raw bytes."""
        return tuple(self._handler(service) for service in SERVICES)

    def _handler(self, service: Service) -> grpc.GenericRpcHandler:
        async def state_of_the_world(_requests: object, context: _Context) -> None:
            await self._serve(context, service.type_url, incremental=False)

        async def delta(_requests: object, context: _Context) -> None:
            await self._serve(context, service.type_url, incremental=True)

        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            service.state_of_the_world: grpc.stream_stream_rpc_method_handler(state_of_the_world),
            service.delta: grpc.stream_stream_rpc_method_handler(delta),
        }
        return grpc.method_handlers_generic_handler(service.name, methods)

    async def _serve(self, context: _Context, type_url: str, *, incremental: bool) -> None:
        if self._closed:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the discovery service is stopping")
        if len(self._streams) >= self._max_streams:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many discovery streams")
        number = next(self._numbers)
        stream = Stream(number, incremental, self._groups, self._observe, self._encoder, self._turnstile, type_url)
        stream.must_be = self._named(context)
        self._streams[number] = stream
        error: str | None = None
        refused: ProtocolError | None = None
        try:
            # By itself it goes out with the first response; where that write is cut short, gRPC would send it twice at
            # the end of the call, and fail.
            await context.send_initial_metadata(())
            await stream.serve(_reader(context), context.write)
        except* ProtocolError as group:
            refused = cast("ProtocolError", group.exceptions[0])
            error = str(refused)
        except* Exception as group:  # noqa: BLE001  one client's stream must not take others with it
            # Once the call is over, reads and writes fail in ways of their own: the client left, nothing is wrong.
            error = None if context.done() else repr(group.exceptions[0])
        finally:
            del self._streams[number]
            if stream.opened:
                self._observe(StreamClosed(number, stream.node, error))
        if isinstance(refused, UnknownNodeError):
            self.refused += 1
            if not stream.opened:
                self._observe(Refused(stream.node, str(refused)))
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refused))
        elif refused is not None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refused))
        elif error is not None:
            await context.abort(grpc.StatusCode.INTERNAL, "the discovery stream failed")


def _reader(context: _Context) -> Read:
    async def read() -> bytes | None:
        message: object = await context.read()
        return message if isinstance(message, bytes) else None  # the other thing it may be is grpc.aio.EOF

    return read
