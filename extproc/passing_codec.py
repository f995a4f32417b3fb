"""Bytes to what Envoy says of an answer, and our replies to bytes."""

from google.protobuf.message import DecodeError

from extproc.passing import AnswerPiece, Facts, HeadersPassed, Reply
from extproc.stream import PeerProtocolError
from protos import ext_proc_pb2

NAMESPACE = "tidegate_answer"
"""Where the access log finds what was read."""

_PASSED = ext_proc_pb2.ProcessingResponse(response_body=ext_proc_pb2.BodyResponse()).SerializeToString()


def piece(message: bytes) -> AnswerPiece:
    """Read one message of the body.

    Raises:
        PeerProtocolError: it is none.
    """
    try:
        request = ext_proc_pb2.ProcessingRequest.FromString(message)
    except DecodeError:
        raise PeerProtocolError("a message that is not a ProcessingRequest") from None
    if not request.HasField("response_body"):
        raise PeerProtocolError(f"{request.WhichOneof('request') or 'an empty message'} in an answer")
    return AnswerPiece(request.response_body.body, request.response_body.end_of_stream)


def encode(reply: Reply) -> bytes:
    """Return the bytes of ``reply``."""
    if isinstance(reply, HeadersPassed):
        response = ext_proc_pb2.ProcessingResponse(response_headers=ext_proc_pb2.HeadersResponse())
        if reply.without_length:
            response.response_headers.response.header_mutation.remove_headers.append("content-length")
        return response.SerializeToString()
    if reply.body is None and reply.facts is None:
        return _PASSED
    response = ext_proc_pb2.ProcessingResponse(response_body=ext_proc_pb2.BodyResponse())
    if reply.body:
        response.response_body.response.body_mutation.body = reply.body
    elif reply.body is not None:
        response.response_body.response.body_mutation.clear_body = True
    if reply.facts is not None:
        _describe(response, reply.facts)
    return response.SerializeToString()


def _describe(response: ext_proc_pb2.ProcessingResponse, facts: Facts) -> None:
    about = response.dynamic_metadata.fields[NAMESPACE].struct_value.fields
    about["over"].bool_value = facts.over
    about["failed"].bool_value = facts.failed
    about["bytes"].number_value = facts.bytes
    about["output_tokens"].number_value = facts.output_tokens
    for name in ("prompt", "completion", "cached", "reasoning"):
        value = getattr(facts, name)
        if value is not None:
            about[f"{name}_tokens"].number_value = value
