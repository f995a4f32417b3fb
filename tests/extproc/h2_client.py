"""A scripted peer of the h2 transport, wired to one connection in memory: nothing happens but what the test says."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes

from extproc.h2_connection import Connection
from extproc.h2_engine import Engine
from extproc.h2_framing import Deframer, framed
from extproc.h2_transport import Inflows, Server
from extproc.transport import METHOD, SERVICE, Outcome
from protos import ext_proc_pb2
from tests.extproc.desks import FakeDesk

MAX_MESSAGE_BYTES = 4_000_000
PROCESS = f"/{SERVICE}/{METHOD}"
HEALTH = "/grpc.health.v1.Health/Check"


class Counts:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.started = 0
        self.ended: list[Outcome] = []

    def stream_started(self) -> None:
        self.started += 1

    def stream_ended(self, outcome: Outcome) -> None:
        self.ended.append(outcome)


class Wire(asyncio.Transport):
    """The server's end of a connection in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.writes = 0
        self.reading = True
        self.closing = False
        self.aborted = False
        self.connection: Connection | None = None

    def write(self, data: Any) -> None:
        assert not self.aborted
        self.written += data
        self.writes += 1

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        if not self.aborted and self.connection is not None:
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)
        self.closing = self.aborted = True


class ClientEngine(H2Connection):
    """One that may go on with its open streams after a GOAWAY, as Envoy does."""

    _receive_goaway_frame = Engine._receive_goaway_frame


@dataclass
class Answer:
    """What came back on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    messages: list[bytes] = field(default_factory=list)
    trailers: dict[str, str] = field(default_factory=dict)
    reset: int | None = None
    ended: bool = False
    deframer: Deframer = field(default_factory=lambda: Deframer(1 << 24))

    @property
    def status(self) -> int:
        """The gRPC status."""
        return int((self.trailers or self.headers)["grpc-status"])


class Peer:
    """A client on a connection of its own; ``unread`` keeps it from giving the server's windows back."""

    def __init__(self, server: Server, settings: Mapping[SettingCodes | int, int] | None = None) -> None:
        self.engine = ClientEngine(H2Configuration(client_side=True, header_encoding="utf-8"))
        if settings:
            self.engine.local_settings.update(dict(settings))
            self.engine.local_settings.acknowledge()
        self.wire = Wire()
        self.connection = Connection(server)
        self.wire.connection = self.connection
        self.connection.connection_made(self.wire)
        self.answers: dict[int, Answer] = {}
        self.goaways: list[int] = []
        self.pings = 0
        self.unread = False
        self.engine.initiate_connection()

    def open(self, path: str = PROCESS, *, end: bool = False, **headers: str) -> int:
        """Open a stream."""
        stream_id = self.engine.get_next_available_stream_id()
        given = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers"}
        given |= {"content-type": "application/grpc"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        self.engine.send_headers(stream_id, list(given.items()), end_stream=end)
        self.answers[stream_id] = Answer()
        return stream_id

    def message(self, stream_id: int, message: bytes, *, end: bool = False) -> None:
        """Send ``message`` in one DATA frame."""
        self.engine.send_data(stream_id, framed(message), end_stream=end)

    def drop(self) -> None:
        """Lose the connection."""
        self.connection.connection_lost(None)

    def outgoing(self) -> bytes:
        """Take what there is to send."""
        return self.engine.data_to_send()

    async def turn(self, turns: int = 12) -> None:
        """Let bytes go both ways, and the event loop turn."""
        for _ in range(turns):
            if self.wire.reading and not self.wire.closing and (data := self.outgoing()):
                self.connection.data_received(data)
            await asyncio.sleep(0)
            self.read()

    def read(self) -> None:
        """Take in what the server has written."""
        data, self.wire.written = bytes(self.wire.written), bytearray()
        for event in self.engine.receive_data(data):
            self._take(event)

    def _take(self, event: events.Event) -> None:
        match event:
            case events.ResponseReceived(stream_id=stream_id, headers=headers):
                self.answers[stream_id].headers = dict(headers)  # type: ignore[arg-type]
            case events.TrailersReceived(stream_id=stream_id, headers=headers):
                self.answers[stream_id].trailers = dict(headers)  # type: ignore[arg-type]
            case events.DataReceived(stream_id=stream_id, data=data, flow_controlled_length=length):
                answer = self.answers[stream_id]
                answer.messages += answer.deframer.feed(data)
                if not self.unread:
                    self.engine.acknowledge_received_data(length, stream_id)
            case events.StreamEnded(stream_id=stream_id):
                self.answers[stream_id].ended = True
            case events.StreamReset(stream_id=stream_id, error_code=code):
                self.answers[stream_id].reset = int(code)
            case events.ConnectionTerminated(last_stream_id=last):
                self.goaways.append(last or 0)
            case events.PingAckReceived():
                self.pings += 1


@asynccontextmanager
async def served(desk: FakeDesk, counts: Counts, inflows: Inflows | None = None) -> AsyncIterator[Server]:
    """Yield a server without a socket; at the end, nothing of it may be left."""
    server = Server(desk, counts, MAX_MESSAGE_BYTES, inflows or {})
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        server.start(tasks)
        yield server
        await server.drain(0)
    assert (server.streams, server.held) == (0, 0)
    assert len(counts.ended) == counts.started


def kinds(answer: Answer) -> list[str | None]:
    return [ext_proc_pb2.ProcessingResponse.FromString(message).WhichOneof("response") for message in answer.messages]


async def feed(peer: Peer, stream_id: int, data: bytes) -> None:
    """Send ``data`` in as many frames as the server's windows and frame size ask for."""
    while data:
        room = min(peer.engine.local_flow_control_window(stream_id), peer.engine.max_outbound_frame_size)
        assert room > 0, "the server does not give its window back"
        peer.engine.send_data(stream_id, data[:room])
        data = data[room:]
        await peer.turn(2)
