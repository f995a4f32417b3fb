"""What the kit says as a gateway."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from protos import core_pb2, ext_proc_pb2

DESTINATION = "x-gateway-destination-endpoint"
SERVED = "x-gateway-destination-endpoint-served"
SUBSET = "x-gateway-destination-endpoint-subset"
DROPPED = "x-llm-d-request-dropped-reason"
OBJECTIVES = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
NONE, STREAMED, BUFFERED, PARTIAL, DUPLEX = range(5)

HEADERS = {
    ":method": "POST",
    ":path": "/v1/completions",
    ":authority": "gateway.test",
    "content-type": "application/json",
    "hi": "mom",
    "x-request-id": "test-request-id",
}


def completion(model: str = "my-model", prompt: str = "test1") -> bytes:
    """Return the body of the suite's standard request."""
    body = {"max_tokens": 100, "model": model, "prompt": prompt, "temperature": 0}
    return json.dumps(body, separators=(",", ":")).encode()


def header_map(headers: Mapping[str, str] | Sequence[tuple[str, str]], *, raw: bool = True) -> core_pb2.HeaderMap:
    """Return headers as Envoy sends them, in ``raw_value``; as others may, in ``value``, unless ``raw``."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return core_pb2.HeaderMap(
        headers=[
            core_pb2.HeaderValue(key=key, raw_value=value.encode())
            if raw
            else core_pb2.HeaderValue(key=key, value=value)
            for key, value in pairs
        ]
    )


def headers(
    sent: Mapping[str, str] | Sequence[tuple[str, str]] = HEADERS,
    *,
    end: bool = False,
    modes: tuple[int, int] | None = (DUPLEX, DUPLEX),
    subset: Any = None,
    raw: bool = True,
) -> ext_proc_pb2.ProcessingRequest:
    """Return a request's headers; ``subset`` is the gateway's hint, where not ``None``."""
    message = ext_proc_pb2.ProcessingRequest(
        request_headers=ext_proc_pb2.HttpHeaders(headers=header_map(sent, raw=raw), end_of_stream=end)
    )
    if modes is not None:
        message.protocol_config.SetInParent()
        message.protocol_config.request_body_mode = modes[0]  # type: ignore[assignment]
        message.protocol_config.response_body_mode = modes[1]  # type: ignore[assignment]
    if subset is not None:
        message.metadata_context.filter_metadata["envoy.lb.subset_hint"].update({SUBSET: subset})
    return message


def body(sent: bytes, *, end: bool = True) -> ext_proc_pb2.ProcessingRequest:
    """Return a piece of a request's body."""
    return ext_proc_pb2.ProcessingRequest(request_body=ext_proc_pb2.HttpBody(body=sent, end_of_stream=end))


def trailers() -> ext_proc_pb2.ProcessingRequest:
    """Return a request's trailers."""
    return ext_proc_pb2.ProcessingRequest(request_trailers=ext_proc_pb2.HttpTrailers())


def response_headers(
    sent: Mapping[str, str] | Sequence[tuple[str, str]], *, end: bool = False, served: str = ""
) -> ext_proc_pb2.ProcessingRequest:
    """Return a response's headers; ``served`` is who answered, where the gateway tells."""
    message = ext_proc_pb2.ProcessingRequest(
        response_headers=ext_proc_pb2.HttpHeaders(headers=header_map(sent), end_of_stream=end)
    )
    if served:
        message.metadata_context.filter_metadata["envoy.lb"].update({SERVED: served})
    return message


def response_body(sent: bytes, *, end: bool = False) -> ext_proc_pb2.ProcessingRequest:
    """Return a piece of a response's body."""
    return ext_proc_pb2.ProcessingRequest(response_body=ext_proc_pb2.HttpBody(body=sent, end_of_stream=end))


def response_trailers() -> ext_proc_pb2.ProcessingRequest:
    """Return a response's trailers."""
    return ext_proc_pb2.ProcessingRequest(response_trailers=ext_proc_pb2.HttpTrailers())
