"""Envoy's side of one external-processing stream, as a model: what it sends, and what it makes of the replies.

After Envoy 1.40's ``ProcessorState``, in the modes that Tidegate configures: request headers SEND, for two exchanges,
or SKIP, for one; request body BUFFERED, nothing of the response. A reply that does not answer the message last sent is
spurious and fails the request; an ``ImmediateResponse`` is taken at any time; a stream that is closed with OK before
the last reply lets the request through without a decision, and one that is closed with an error fails it.
"""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToDict

from extproc.codec import ATTRIBUTES
from extproc.desk import Desk
from extproc.exchange import exchange
from protos import core_pb2, ext_proc_pb2

POST = {":method": "POST", ":path": "/v1/chat/completions", ":authority": "x", "content-type": "application/json"}
HELLO = b'{"model": "m", "messages": [{"role": "user", "content": "hello"}]}'


def header_map(headers: Mapping[str, str]) -> core_pb2.HeaderMap:
    values = [core_pb2.HeaderValue(key=key, raw_value=value.encode()) for key, value in headers.items()]
    return core_pb2.HeaderMap(headers=values)


def headers_message(headers: Mapping[str, str] = POST, *, end_of_stream: bool = False, mode: int | None = 2) -> bytes:
    message = ext_proc_pb2.ProcessingRequest(
        request_headers=ext_proc_pb2.HttpHeaders(headers=header_map(headers), end_of_stream=end_of_stream)
    )
    if mode is not None:
        message.protocol_config.request_body_mode = mode  # type: ignore[assignment]
    return message.SerializeToString()


def body_message(body: bytes = HELLO, *, end_of_stream: bool = True) -> bytes:
    sent = ext_proc_pb2.HttpBody(body=body, end_of_stream=end_of_stream)
    return ext_proc_pb2.ProcessingRequest(request_body=sent).SerializeToString()


def whole_message(
    headers: Mapping[str, str] = POST,
    body: bytes = HELLO,
    *,
    end_of_stream: bool = True,
    mode: int = 2,
    also_read: Sequence[str] = (),
) -> bytes:
    message = ext_proc_pb2.ProcessingRequest(request_body=ext_proc_pb2.HttpBody(body=body, end_of_stream=end_of_stream))
    message.protocol_config.request_body_mode = mode  # type: ignore[assignment]
    attributes = message.attributes["envoy.filters.http.ext_proc"].fields
    # The headers that a configuration wants read besides are those that begin so.
    routed = [header for header in headers if header.startswith("x-routed-")]
    others = {f"request.headers['{name}']": name for name in (*also_read, *routed)}
    for name, header in {**ATTRIBUTES, **others}.items():
        if header in headers:
            attributes[name].string_value = headers[header].encode("latin-1")
    message.attributes["envoy.filters.http.ext_proc"].SetInParent()
    return message.SerializeToString()


@dataclass
class Result:
    """What became of a request.

    ``kind`` is ``routed``, ``answered``, ``failed`` (the client gets a 500) or ``let_through`` (the silent fail-open).
    """

    patience: float = 0.0
    kind: str = "open"
    metadata: dict[str, Any] = field(default_factory=dict)
    clear_route_cache: bool = False
    sent_on: bytes | None = None
    mutated: dict[str, str] = field(default_factory=dict)
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    details: str = ""
    error: BaseException | None = None

    @property
    def fault(self) -> dict[str, Any]:
        """The error that the client reads."""
        error = json.loads(self.body)["error"]
        assert isinstance(error, dict)
        return error


class Envoy:
    """One HTTP request, filtered."""

    def __init__(self, headers: Mapping[str, str], body: bytes | None, exchanges: int = 2) -> None:
        assert exchanges == 2 or body is not None, "such a request is not asked about"
        self.headers, self.body, self.exchanges = headers, body, exchanges
        self.awaits = "request_headers" if exchanges == 2 else "request_body"
        self.result = Result()

    def messages(self) -> Sequence[bytes]:
        if self.exchanges == 1:
            return [whole_message(self.headers, self.body or b"", also_read=("authorization", "x-api-key"))]
        sent = [headers_message(self.headers, end_of_stream=self.body is None)]
        return sent if self.body is None else [*sent, body_message(self.body)]

    def take(self, reply: bytes) -> None:
        """Process one reply, as the filter does."""
        assert self.result.kind == "open", "a reply after the last one"
        message = ext_proc_pb2.ProcessingResponse.FromString(reply)
        self.result.metadata |= MessageToDict(message.dynamic_metadata)
        kind = message.WhichOneof("response")
        if message.HasField("override_message_timeout"):
            assert kind is None, "it is looked at alone"
            assert not self.result.patience, "the second one is ignored"
            self.result.patience = message.override_message_timeout.ToMilliseconds() / 1000
            return
        if kind == "immediate_response":
            self._answer(message.immediate_response)
        elif kind != self.awaits:
            self.result.kind, self.result.details = "failed", f"spurious_message: {kind}"
        elif kind == "request_headers" and self.body is not None:
            self.awaits = "request_body"
        else:
            common = getattr(message, kind).response
            # Without a header mutation, be it an empty one, Envoy ignores the wish (clear_route_cache_ignored).
            anew = common.clear_route_cache and common.HasField("header_mutation")
            self.result.kind, self.result.clear_route_cache = "routed", anew
            self._mutate(common)

    def _mutate(self, common: ext_proc_pb2.CommonResponse) -> None:
        for option in common.header_mutation.set_headers:
            self.result.mutated[option.header.key] = option.header.raw_value.decode()
        self.result.sent_on = self.body
        if common.HasField("body_mutation"):
            self.result.sent_on = common.body_mutation.body
            length = self.result.mutated.get("content-length", self.headers.get("content-length"))
            if length is not None and int(length) != len(self.result.sent_on):
                # mismatch_between_content_length_and_the_length_of_the_mutated_body
                self.result.kind = "failed"

    def _answer(self, answer: ext_proc_pb2.ImmediateResponse) -> None:
        self.result.kind = "answered"
        self.result.status, self.result.body, self.result.details = answer.status.code, answer.body, answer.details
        for option in answer.headers.set_headers:
            assert not option.header.value, "values go into raw_value"
            self.result.headers[option.header.key] = option.header.raw_value.decode()

    def closed(self, error: BaseException | None) -> None:
        """Process the end of the stream, with OK or with an error status."""
        if self.result.kind == "open":
            self.result.kind = "let_through" if error is None else "failed"
            self.result.error = error


async def feed(messages: Sequence[bytes]) -> AsyncGenerator[bytes, None]:
    for message in messages:
        yield message


async def ask(
    desk: Desk, headers: Mapping[str, str] = POST, body: bytes | None = HELLO, *, exchanges: int = 2
) -> Result:
    """Join one request to the exchange, without a socket."""
    envoy = Envoy(headers, body, exchanges)
    return await join(desk, envoy, envoy.messages())


async def join(desk: Desk, envoy: Envoy, messages: Sequence[bytes]) -> Result:
    """Join ``envoy`` to the exchange, sending ``messages`` whatever it would send itself."""
    try:
        async with aclosing(feed(messages)) as sent, aclosing(exchange(sent, desk)) as replies:
            async for reply in replies:
                envoy.take(reply)
    except Exception as error:  # noqa: BLE001  whatever it is, the transport ends the stream with an error status
        envoy.closed(error)
    else:
        envoy.closed(None)
    return envoy.result
