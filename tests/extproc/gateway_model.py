"""What a gateway sends on a stream of the endpoint picker protocol, and what it is told, without a socket."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToDict

from extproc.picker_exchange import PickerExchange
from extproc.picker_gateway import Picked, Settings
from protos import ext_proc_pb2
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import HELLO, POST, header_map
from tidegate.scheduling.dispatch import Decision

NONE, STREAMED, BUFFERED, PARTIAL, DUPLEX, GRPC = range(6)
DESTINATION = "x-gateway-destination-endpoint"


class FakeGateway:
    """Keeps account, and remembers it."""

    def __init__(self, settings: Settings | None = None, max_held: int = 1 << 40) -> None:
        self.settings = settings or Settings()
        self.max_held = max_held
        self.held = 0
        self.open: list[str] = []
        self.elsewhere: list[str] = []
        self.picked: list[Picked] = []

    def hold(self, change: int) -> bool:
        self.held += change
        return self.held <= self.max_held

    def sent(self, reservation_id: str) -> None:
        self.open.append(reservation_id)

    def served_by(self, decision: Decision, address: str) -> None:
        self.elsewhere.append(address)

    def ended(self, picked: Picked) -> None:
        self.open.remove(picked.decision.reservation.id)
        self.picked.append(picked)


def request_headers(
    headers: Mapping[str, str] = POST,
    *,
    end_of_stream: bool = False,
    modes: tuple[int, int] | None = (DUPLEX, DUPLEX),
    metadata: Mapping[str, Mapping[str, Any]] | None = None,
) -> bytes:
    message = ext_proc_pb2.ProcessingRequest(
        request_headers=ext_proc_pb2.HttpHeaders(headers=header_map(headers), end_of_stream=end_of_stream)
    )
    return _with(message, modes, metadata)


def response_headers(
    headers: Mapping[str, str] | None = None,
    *,
    end_of_stream: bool = False,
    modes: tuple[int, int] | None = None,
    metadata: Mapping[str, Mapping[str, Any]] | None = None,
) -> bytes:
    message = ext_proc_pb2.ProcessingRequest(
        response_headers=ext_proc_pb2.HttpHeaders(
            headers=header_map({":status": "200"} if headers is None else headers), end_of_stream=end_of_stream
        )
    )
    return _with(message, modes, metadata)


def _with(
    message: ext_proc_pb2.ProcessingRequest,
    modes: tuple[int, int] | None,
    metadata: Mapping[str, Mapping[str, Any]] | None,
) -> bytes:
    if modes is not None:
        message.protocol_config.SetInParent()
        message.protocol_config.request_body_mode, message.protocol_config.response_body_mode = modes  # type: ignore[assignment]
    for namespace, values in (metadata or {}).items():
        message.metadata_context.filter_metadata[namespace].update(values)
    return message.SerializeToString()


def piece(body: bytes = HELLO, *, end: bool = True) -> bytes:
    sent = ext_proc_pb2.HttpBody(body=body, end_of_stream=end)
    return ext_proc_pb2.ProcessingRequest(request_body=sent).SerializeToString()


def response_piece(body: bytes, *, end: bool = False) -> bytes:
    sent = ext_proc_pb2.HttpBody(body=body, end_of_stream=end)
    return ext_proc_pb2.ProcessingRequest(response_body=sent).SerializeToString()


TRAILERS = ext_proc_pb2.ProcessingRequest(request_trailers=ext_proc_pb2.HttpTrailers()).SerializeToString()
RESPONSE_TRAILERS = ext_proc_pb2.ProcessingRequest(response_trailers=ext_proc_pb2.HttpTrailers()).SerializeToString()


@dataclass
class Told:
    """The replies on one stream, and the error that ended it, if any."""

    replies: list[ext_proc_pb2.ProcessingResponse] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def kinds(self) -> list[str | None]:
        return [reply.WhichOneof("response") for reply in self.replies]

    @property
    def decision(self) -> ext_proc_pb2.ProcessingResponse:
        (found,) = [reply for reply in self.replies if reply.HasField("dynamic_metadata")]
        return found

    @property
    def metadata(self) -> dict[str, Any]:
        return MessageToDict(self.decision.dynamic_metadata)

    @property
    def refusal(self) -> ext_proc_pb2.ImmediateResponse:
        return self.replies[-1].immediate_response

    @property
    def refusal_headers(self) -> dict[str, str]:
        return {option.header.key: option.header.raw_value.decode() for option in self.refusal.headers.set_headers}

    def echoed(self, kind: str = "request_body") -> list[tuple[bytes, bool]]:
        bodies = [getattr(reply, kind) for reply in self.replies if reply.WhichOneof("response") == kind]
        streamed = [body.response.body_mutation.streamed_response for body in bodies]
        return [(body.body, body.end_of_stream) for body in streamed]


async def _feed(messages: Sequence[bytes]) -> AsyncGenerator[bytes, None]:
    for message in messages:
        yield message


async def tell(
    *messages: bytes, desk: FakeDesk | None = None, gateway: FakeGateway | None = None, taken: int | None = None
) -> Told:
    """Send ``messages``, then end the stream; take all replies, or so many and then break it off."""
    told = Told()
    held = PickerExchange(desk or FakeDesk(), gateway or FakeGateway())
    try:
        async with aclosing(_feed(messages)) as sent, aclosing(held.replies(sent)) as replies:
            async for reply in replies:
                told.replies.append(ext_proc_pb2.ProcessingResponse.FromString(reply))
                if len(told.replies) == taken:
                    break
    except Exception as error:  # noqa: BLE001  whatever it is, the transport ends the stream with an error status
        told.error = error
    return told
