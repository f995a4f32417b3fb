"""Bytes to what a gateway said by the endpoint picker protocol, and our replies to bytes.

The protocol is the Gateway API Inference Extension's proposal 004, version 1.0.0. Of a request and of its response only
what must change is changed: the destination is set, and control headers that a client or an engine sent are removed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Value

from extproc import codec
from extproc.errors import ApiError, Shape
from extproc.picker_messages import (
    BodyMode,
    Message,
    Modes,
    Piece,
    RequestHeaders,
    ResponseHeaders,
    ResponsePiece,
    ResponseTrailers,
    Trailers,
)
from extproc.stream import PeerProtocolError
from protos import core_pb2, ext_proc_pb2
from tidegate.scheduling.subset import Subset

DESTINATION: Final = codec.DESTINATION_KEY
"""Both a request header and a key in ``codec.DESTINATION_NAMESPACE``; the two must be equal."""

SERVED: Final = "x-gateway-destination-endpoint-served"
"""In the same namespace, in the response's phase: the endpoint that answered."""

SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"
SUBSET: Final = "x-gateway-destination-endpoint-subset"

DROPPED: Final = "x-llm-d-request-dropped-reason"
DROP_REASONS: Final[Mapping[str, str]] = {
    "no_endpoints": "rejected-no-endpoints",
    "overloaded": "rejected-saturated",
    "saturated": "rejected-saturated",
    "decision_timeout": "rejected-ttl-expired",
    "upload_timeout": "rejected-ttl-expired",
}
"""What gateways and their dashboards call our reasons."""

CONTROL: Final = frozenset(
    {
        DESTINATION,
        SERVED,
        SUBSET,
        "x-llm-d-inference-objective",
        "x-gateway-inference-objective",
        "x-llm-d-inference-fairness-id",
        "x-gateway-inference-fairness-id",
        "x-llm-d-model-name-rewrite",
        "x-gateway-model-name-rewrite",
        "x-llm-d-slo-ttft-ms",
        "x-slo-ttft-ms",
        "x-llm-d-slo-tpot-ms",
        "x-slo-tpot-ms",
    }
)
"""Headers between clients, gateways and pickers, which engines have no business with. Tidegate obeys none of them."""

RESIZED: Final = frozenset({"content-length"})

TEST_SELECTION: Final = "test-epp-endpoint-selection"
TEST_SERVED: Final = "x-conformance-test-served-endpoint"
"""What the Gateway API's conformance tests ask with, and what they want to be told."""

PIECE_BYTES: Final = 62_000
"""The most that is sent back of a body at a time. Envoy takes no more than 64 kB, the message's other bytes included;
this is what the reference implementation sends."""

_MODES: Final = {
    ext_proc_pb2.ProcessingMode.NONE: BodyMode.NONE,
    ext_proc_pb2.ProcessingMode.STREAMED: BodyMode.STREAMED,
    ext_proc_pb2.ProcessingMode.BUFFERED: BodyMode.BUFFERED,
    ext_proc_pb2.ProcessingMode.BUFFERED_PARTIAL: BodyMode.BUFFERED_PARTIAL,
    ext_proc_pb2.ProcessingMode.FULL_DUPLEX_STREAMED: BodyMode.FULL_DUPLEX_STREAMED,
}


def decode(message: bytes) -> Message:
    """Read one ``ProcessingRequest``.

    Raises:
        PeerProtocolError: the bytes are not one, or it says what has no place here.
    """
    try:
        request = ext_proc_pb2.ProcessingRequest.FromString(message)
    except DecodeError:
        raise PeerProtocolError("a message that is not a ProcessingRequest") from None
    match request.WhichOneof("request"):
        case "request_headers":
            of_request = request.request_headers
            return RequestHeaders(
                _headers(of_request.headers), of_request.end_of_stream, _modes(request), _subset(request)
            )
        case "request_body":
            return Piece(request.request_body.body, request.request_body.end_of_stream)
        case "request_trailers":
            return Trailers()
        case "response_headers":
            of_response = request.response_headers
            return ResponseHeaders(
                _headers(of_response.headers), of_response.end_of_stream, _served(request), _modes(request)
            )
        case "response_body":
            return ResponsePiece(request.response_body.body, request.response_body.end_of_stream)
        case "response_trailers":
            return ResponseTrailers()
        case _:
            raise PeerProtocolError("an empty message")


def _modes(request: ext_proc_pb2.ProcessingRequest) -> Modes | None:
    if not request.HasField("protocol_config"):
        return None
    said = request.protocol_config
    try:
        return Modes(_MODES[said.request_body_mode], _MODES[said.response_body_mode])
    except KeyError as error:
        raise PeerProtocolError(f"a body mode that is not served: {error}") from None


def _headers(received: core_pb2.HeaderMap) -> dict[str, str]:
    """Return the headers by name in lower case; repeated values are joined by commas, cookies by semicolons."""
    headers: dict[str, str] = {}
    for header in received.headers:
        name = header.key.lower()
        # Envoy fills raw_value; other gateways may fill value.
        value = header.raw_value.decode("latin-1") or header.value
        if name in headers:
            value = f"{headers[name]}{'; ' if name == 'cookie' else ','}{value}"
        headers[name] = value
    return headers


def _metadata(request: ext_proc_pb2.ProcessingRequest, namespace: str, key: str) -> Value | None:
    told = request.metadata_context.filter_metadata
    # A map of messages makes what it is asked for: ask first.
    return told[namespace].fields[key] if namespace in told and key in told[namespace].fields else None


def _subset(request: ext_proc_pb2.ProcessingRequest) -> Subset | None:
    """Return the endpoints that the gateway allows: a list, or a text with commas. Anything else allows none."""
    hint = _metadata(request, SUBSET_NAMESPACE, SUBSET)
    if hint is None:
        return None
    if hint.WhichOneof("kind") == "string_value":
        return Subset.of(hint.string_value.split(","))
    return Subset.of(value.string_value for value in hint.list_value.values)


def _served(request: ext_proc_pb2.ProcessingRequest) -> str:
    served = _metadata(request, codec.DESTINATION_NAMESPACE, SERVED)
    return "" if served is None else served.string_value


CONTINUE: Final = codec.CONTINUE
"""The reply to headers that asks for a buffered body."""

PASS_PIECE: Final = ext_proc_pb2.ProcessingResponse(request_body=ext_proc_pb2.BodyResponse()).SerializeToString()
PASS_TRAILERS: Final = ext_proc_pb2.ProcessingResponse(
    request_trailers=ext_proc_pb2.TrailersResponse()
).SerializeToString()
PASS_RESPONSE_PIECE: Final = ext_proc_pb2.ProcessingResponse(
    response_body=ext_proc_pb2.BodyResponse()
).SerializeToString()
PASS_RESPONSE_TRAILERS: Final = ext_proc_pb2.ProcessingResponse(
    response_trailers=ext_proc_pb2.TrailersResponse()
).SerializeToString()


def decision_on_headers(addresses: Iterable[str], headers: Mapping[str, str], body: bytes | None = None) -> bytes:
    """Return the reply to ``headers`` that sends the request to the first of ``addresses``, or to the next ones.

    ``body`` is what takes the place of the client's; ``None`` where nothing does.
    """
    reply = ext_proc_pb2.ProcessingResponse()
    _send_on(reply, reply.request_headers.response, ",".join(addresses), headers)
    _measure(reply.request_headers.response, headers, body)
    return reply.SerializeToString()


def decision_on_body(addresses: Iterable[str], headers: Mapping[str, str], body: bytes | None = None) -> bytes:
    """Return the same as the reply to a buffered body."""
    reply = ext_proc_pb2.ProcessingResponse()
    _send_on(reply, reply.request_body.response, ",".join(addresses), headers)
    _measure(reply.request_body.response, headers, body)
    if body is not None:
        reply.request_body.response.body_mutation.body = body
    return reply.SerializeToString()


def _measure(response: ext_proc_pb2.CommonResponse, headers: Mapping[str, str], body: bytes | None) -> None:
    """Say how long ``body`` is, where the client said that of its own."""
    if body is not None and "content-length" in headers:
        _set(response.header_mutation, "content-length", str(len(body)))


def _send_on(
    reply: ext_proc_pb2.ProcessingResponse,
    response: ext_proc_pb2.CommonResponse,
    destination: str,
    headers: Mapping[str, str],
) -> None:
    # A route may look at the header that we set.
    response.clear_route_cache = True
    _set(response.header_mutation, DESTINATION, destination)
    response.header_mutation.remove_headers.extend(sorted(CONTROL.intersection(headers) - {DESTINATION}))
    namespace = reply.dynamic_metadata.fields[codec.DESTINATION_NAMESPACE].struct_value.fields
    namespace[DESTINATION].string_value = destination


def _set(mutation: ext_proc_pb2.HeaderMutation, name: str, value: str) -> None:
    option = mutation.set_headers.add()
    option.header.key = name
    option.header.raw_value = value.encode("latin-1", "replace")
    option.append_action = core_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


def echoed(body: bytes, *, end: bool) -> Iterator[bytes]:
    """Return the replies that send a request's ``body`` on in full duplex; the last one is its end if ``end``."""
    for piece, last in _cut(body):
        reply = ext_proc_pb2.ProcessingResponse()
        streamed = reply.request_body.response.body_mutation.streamed_response
        streamed.body, streamed.end_of_stream = piece, end and last
        yield reply.SerializeToString()


def echoed_response(body: bytes, *, end: bool) -> Iterator[bytes]:
    """Return the same for a piece of a response."""
    for piece, last in _cut(body):
        reply = ext_proc_pb2.ProcessingResponse()
        streamed = reply.response_body.response.body_mutation.streamed_response
        streamed.body, streamed.end_of_stream = piece, end and last
        yield reply.SerializeToString()


def _cut(body: bytes) -> Iterator[tuple[bytes, bool]]:
    """Cut ``body`` into pieces, and tell of each whether it is the last; an empty body is one empty piece."""
    for start in range(0, max(len(body), 1), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES], start + PIECE_BYTES >= len(body)


def pass_response_headers(headers: Mapping[str, str], told: Mapping[str, str], *, resized: bool = False) -> bytes:
    """Return the reply to a response's ``headers`` that sets those in ``told``; ``resized``, it has no length then."""
    reply = ext_proc_pb2.ProcessingResponse()
    reply.response_headers.SetInParent()
    if present := sorted((CONTROL | RESIZED if resized else CONTROL).intersection(headers)):
        reply.response_headers.response.header_mutation.remove_headers.extend(present)
    for name, value in told.items():
        _set(reply.response_headers.response.header_mutation, name, value)
    return reply.SerializeToString()


def refusal(error: ApiError, shape: Shape) -> bytes:
    """Return the reply that has the gateway answer the client with ``error`` in ``shape``, and say why in a header."""
    if reason := DROP_REASONS.get(error.reason):
        error.headers = {**error.headers, DROPPED: reason}
    return codec.refusal(error, {}, shape)


def answer(body: bytes) -> bytes:
    """Return the reply that has the gateway answer the client with the JSON ``body``."""
    return codec.answer(body, {})
