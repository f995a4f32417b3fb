"""Access-log entries as Envoy writes them, with one thing or another changed."""

from typing import Any

from google.protobuf.any_pb2 import Any as Packed

from protos import access_log_pb2 as pb
from protos.ai_pb2 import TokenUsage

DECISION: dict[str, Any] = {
    "reservation": "r-1",
    "pool": "default",
    "model": "llama",
    "api": "chat_completions",
    "prompt_tokens": 100,
    "count_source": "exact",
    "stream": True,
}
TYPE_URL = "type.googleapis.com/envoy.data.ai.v3.TokenUsage"


def usage(
    prompt: int | None = 110,
    completion: int | None = 21,
    cached: int | None = 64,
    reasoning: int | None = None,
    status: TokenUsage.ExtractionStatus = TokenUsage.COMPLETE,
) -> TokenUsage:
    message = TokenUsage(extraction_status=status)
    if prompt is not None:
        message.input_tokens.value = prompt
    if completion is not None:
        message.output_tokens.value = completion
    if cached is not None:
        message.input_token_details.cached_tokens.value = cached
    if reasoning is not None:
        message.output_token_details.reasoning_tokens.value = reasoning
    return message


def entry(
    *,
    decision: dict[str, Any] | None = DECISION,
    destinations: str | None = "10.0.0.1:8000,10.0.0.2:8000",
    tokens: TokenUsage | None = None,
    status: int = 200,
    flags: tuple[str, ...] = (),
    served: tuple[str, int] | None = ("10.0.0.1", 8000),
    attempts: int = 1,
    seconds: float | None = 2.5,
    tags: dict[str, str] | None = None,
    kind: pb.AccessLogType = pb.DownstreamEnd,
    answer: dict[str, Any] | None = None,
    size: int = 0,
    route: str = "",
    unread: str | None = None,
) -> pb.HTTPAccessLogEntry:
    """Return the last entry of a good streamed answer, but for what is given."""
    result = pb.HTTPAccessLogEntry()
    common = result.common_properties
    common.access_log_type = kind
    common.route_name = route
    if unread is not None:
        common.metadata.filter_metadata["tidegate.unread"].update({"model": unread})
    if decision is not None:
        common.metadata.filter_metadata["tidegate"].update(decision)
    if destinations is not None:
        common.metadata.filter_metadata["envoy.lb"].update({"x-gateway-destination-endpoint": destinations})
    if tokens is not None:
        packed = Packed(type_url=TYPE_URL, value=tokens.SerializeToString())
        common.metadata.typed_filter_metadata["ai_usage"].CopyFrom(packed)
    if answer is not None:
        common.metadata.filter_metadata["tidegate_answer"].update(answer)
    result.response.response_body_bytes = size
    if status:
        result.response.response_code.value = status
    for flag in flags:
        setattr(common.response_flags, flag, True)
    if served is not None:
        common.upstream_remote_address.socket_address.address = served[0]
        common.upstream_remote_address.socket_address.port_value = served[1]
    common.upstream_request_attempt_count = attempts
    if seconds is not None:
        common.duration.FromNanoseconds(round(seconds * 1e9))
    common.custom_tags.update({"ttft_us": "500000", "upstream_ttft_us": "450000"} if tags is None else tags)
    return result
