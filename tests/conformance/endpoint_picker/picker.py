"""The picker under test, as a gateway sees it: streams on a gRPC channel."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict

from protos import ext_proc_pb2
from tests.conformance.endpoint_picker import messages
from tests.conformance.endpoint_picker.messages import DESTINATION, HEADERS

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
MAX_PIECE = 64 * 1024 - 1
"""The most that Envoy takes of a body at a time in full duplex."""
REPLY_SECONDS = 10.0
QUIET_SECONDS = 0.3

Reply = ext_proc_pb2.ProcessingResponse


class Stream:
    """One stream, which is one request."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.reading: asyncio.Future[Any] | None = None

    async def send(self, *sent: ext_proc_pb2.ProcessingRequest) -> None:
        """Send messages."""
        for message in sent:
            await self.call.write(message.SerializeToString())

    async def reply(self, kind: str | None = None) -> Reply:
        """Return the next reply, which is to be a ``kind``."""
        reading, self.reading = self.reading or asyncio.ensure_future(self.call.read()), None
        async with asyncio.timeout(REPLY_SECONDS):
            raw = await reading
        assert isinstance(raw, bytes), f"the stream ended: {await self.call.code()} {await self.call.details()}"
        reply = Reply.FromString(raw)
        assert kind is None or reply.WhichOneof("response") == kind, reply
        return reply

    async def quiet(self) -> None:
        """Find that nothing is replied for a while."""
        self.reading = self.reading or asyncio.ensure_future(self.call.read())
        done, _ = await asyncio.wait({self.reading}, timeout=QUIET_SECONDS)
        assert not done, f"replied too early: {Reply.FromString(self.reading.result())}"

    async def streamed(self, kind: str) -> tuple[bytes, list[int]]:
        """Return what is sent back of a body to its end, and the sizes of the pieces."""
        pieces: list[bytes] = []
        while True:
            piece = getattr(await self.reply(kind), kind).response.body_mutation.streamed_response
            pieces.append(piece.body)
            assert len(piece.body) <= MAX_PIECE
            if piece.end_of_stream:
                return b"".join(pieces), [len(part) for part in pieces]

    async def echoed(self, size: int, kind: str = "response_body") -> bytes:
        """Return the next ``size`` bytes that are sent back, whose end is not there yet."""
        got = b""
        while len(got) < size:
            piece = getattr(await self.reply(kind), kind).response.body_mutation.streamed_response
            assert not piece.end_of_stream
            got += piece.body
        return got

    async def ended(self) -> grpc.StatusCode:
        """End our side; return the status, after no more replies."""
        await self.call.done_writing()
        async with asyncio.timeout(REPLY_SECONDS):
            raw = await self.call.read()
            assert not isinstance(raw, bytes), f"a reply too many: {Reply.FromString(raw)}"
            code: grpc.StatusCode = await self.call.code()
        return code


@dataclass
class Routed:
    """A decision.

    Attributes:
        reply: the reply that bears it.
        kind: which reply that is.
        destinations: the endpoints, the pick first.
        headers: the request's headers once the reply is applied.
        body: the body that goes on; empty where it was not sent back.
    """

    reply: Reply
    kind: str
    headers: dict[str, str]
    destinations: list[str] = field(default_factory=list)
    body: bytes = b""

    @property
    def pick(self) -> str:
        """The endpoint picked."""
        return self.destinations[0]


@dataclass
class Rejected:
    """A refusal, as the client sees it."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Picker:
    """The picker under test."""

    address: str
    health: str
    features: frozenset[str]

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[Stream]:
        """Open a stream; cancel it at the end, if it has not ended."""
        options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]
        async with grpc.aio.insecure_channel(self.address, options=options) as channel:
            call: Any = channel.stream_stream(PROCESS)()
            try:
                yield Stream(call)
            finally:
                call.cancel()

    async def route(self, *sent: bytes, **of_headers: Any) -> Routed:
        """Send a request in full duplex, its body in the pieces ``sent``; return the decision."""
        async with self.stream() as stream:
            return await routed(stream, *sent, **of_headers)

    async def reject(self, *sent: bytes, **of_headers: Any) -> Rejected:
        """Send one that is to be refused; return the refusal."""
        async with self.stream() as stream:
            await stream.send(messages.headers(**{"end": not sent, **of_headers}))
            for number, piece in enumerate(sent):
                await stream.send(messages.body(piece, end=number == len(sent) - 1))
            return rejected(await stream.reply("immediate_response"))


async def routed(stream: Stream, *sent: bytes, **of_headers: Any) -> Routed:
    """Send a request on ``stream``, as ``Picker.route`` does; return the decision."""
    await stream.send(messages.headers(**{"end": not sent, **of_headers}))
    for number, piece in enumerate(sent):
        await stream.send(messages.body(piece, end=number == len(sent) - 1))
    decision = decided(await stream.reply("request_headers"), of_headers.get("sent", HEADERS))
    if sent:
        decision.body, _ = await stream.streamed("request_body")
    return decision


def decided(reply: Reply, sent: Mapping[str, str]) -> Routed:
    """Read a decision; hold it to what every decision must be."""
    kind = reply.WhichOneof("response")
    assert kind in {"request_headers", "request_body"}, reply
    response = getattr(reply, kind).response
    result = mutated(sent, response.header_mutation)
    metadata = MessageToDict(reply.dynamic_metadata)
    assert DESTINATION in result, "the destination is not in a header"
    assert metadata.get("envoy.lb", {}).get(DESTINATION) == result[DESTINATION], "header and metadata differ"
    assert response.clear_route_cache
    return Routed(reply, kind, result, result[DESTINATION].split(","))


def mutated(sent: Mapping[str, str], mutation: ext_proc_pb2.HeaderMutation) -> dict[str, str]:
    """Return headers as Envoy would make them of ``sent``."""
    result = {key.lower(): value for key, value in sent.items()}
    for name in mutation.remove_headers:
        result.pop(name.lower(), None)
    for option in mutation.set_headers:
        result[option.header.key.lower()] = option.header.raw_value.decode() or option.header.value
    return result


def rejected(reply: Reply) -> Rejected:
    """Read a refusal."""
    answer = reply.immediate_response
    return Rejected(answer.status.code, mutated({}, answer.headers), answer.body)
