from google.protobuf import wrappers_pb2 as _wrappers_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LLMProtocol(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LLM_PROTOCOL_UNSPECIFIED: _ClassVar[LLMProtocol]
    OPENAI_CHAT_COMPLETIONS: _ClassVar[LLMProtocol]
    OPENAI_RESPONSES: _ClassVar[LLMProtocol]
    ANTHROPIC_MESSAGES: _ClassVar[LLMProtocol]
    GEMINI_GENERATE_CONTENT: _ClassVar[LLMProtocol]
LLM_PROTOCOL_UNSPECIFIED: LLMProtocol
OPENAI_CHAT_COMPLETIONS: LLMProtocol
OPENAI_RESPONSES: LLMProtocol
ANTHROPIC_MESSAGES: LLMProtocol
GEMINI_GENERATE_CONTENT: LLMProtocol

class InputTokenDetails(_message.Message):
    __slots__ = ("cached_tokens", "cache_creation_tokens", "tool_use_tokens")
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_CREATION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOOL_USE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    cached_tokens: _wrappers_pb2.UInt64Value
    cache_creation_tokens: _wrappers_pb2.UInt64Value
    tool_use_tokens: _wrappers_pb2.UInt64Value
    def __init__(self, cached_tokens: _Optional[_Union[_wrappers_pb2.UInt64Value, _Mapping]] = ..., cache_creation_tokens: _Optional[_Union[_wrappers_pb2.UInt64Value, _Mapping]] = ..., tool_use_tokens: _Optional[_Union[_wrappers_pb2.UInt64Value, _Mapping]] = ...) -> None: ...

class OutputTokenDetails(_message.Message):
    __slots__ = ("reasoning_tokens",)
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    reasoning_tokens: _wrappers_pb2.UInt64Value
    def __init__(self, reasoning_tokens: _Optional[_Union[_wrappers_pb2.UInt64Value, _Mapping]] = ...) -> None: ...

class TokenUsage(_message.Message):
    __slots__ = ("llm_protocol", "model", "input_tokens", "output_tokens", "total_tokens", "input_token_details", "output_token_details", "provider_total_tokens", "extraction_status")
    class ExtractionStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EXTRACTION_STATUS_UNSPECIFIED: _ClassVar[TokenUsage.ExtractionStatus]
        COMPLETE: _ClassVar[TokenUsage.ExtractionStatus]
        PARTIAL: _ClassVar[TokenUsage.ExtractionStatus]
        FAILED: _ClassVar[TokenUsage.ExtractionStatus]
    EXTRACTION_STATUS_UNSPECIFIED: TokenUsage.ExtractionStatus
    COMPLETE: TokenUsage.ExtractionStatus
    PARTIAL: TokenUsage.ExtractionStatus
    FAILED: TokenUsage.ExtractionStatus
    LLM_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKEN_DETAILS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKEN_DETAILS_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EXTRACTION_STATUS_FIELD_NUMBER: _ClassVar[int]
    llm_protocol: LLMProtocol
    model: str
    input_tokens: _wrappers_pb2.UInt64Value
    output_tokens: _wrappers_pb2.UInt64Value
    total_tokens: _wrappers_pb2.UInt64Value
    input_token_details: InputTokenDetails
    output_token_details: OutputTokenDetails
    provider_total_tokens: _wrappers_pb2.UInt64Value
    extraction_status: TokenUsage.ExtractionStatus
    def __init__(self, llm_protocol: _Optional[_Union[LLMProtocol, str]] = ..., model: _Optional[str] = ..., input_tokens: _Optional[_Union[_wrappers_pb2.UInt64Value, _Mapping]] = ..., output_tokens: _Optional[_Union[_wrappers_pb2.UInt64Value, _Mapping]] = ..., total_tokens: _Optional[_Union[_wrappers_pb2.UInt64Value, _Mapping]] = ..., input_token_details: _Optional[_Union[InputTokenDetails, _Mapping]] = ..., output_token_details: _Optional[_Union[OutputTokenDetails, _Mapping]] = ..., provider_total_tokens: _Optional[_Union[_wrappers_pb2.UInt64Value, _Mapping]] = ..., extraction_status: _Optional[_Union[TokenUsage.ExtractionStatus, str]] = ...) -> None: ...

class TokenUsageExtractionLimits(_message.Message):
    __slots__ = ("max_sse_event_size", "max_json_body_size", "max_parsed_sse_events")
    MAX_SSE_EVENT_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_JSON_BODY_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_PARSED_SSE_EVENTS_FIELD_NUMBER: _ClassVar[int]
    max_sse_event_size: _wrappers_pb2.UInt32Value
    max_json_body_size: _wrappers_pb2.UInt32Value
    max_parsed_sse_events: _wrappers_pb2.UInt32Value
    def __init__(self, max_sse_event_size: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., max_json_body_size: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., max_parsed_sse_events: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ...) -> None: ...

class TokenUsageExtraction(_message.Message):
    __slots__ = ("include_unconfigured_routes", "default_llm_protocol", "metadata_namespace", "limits")
    INCLUDE_UNCONFIGURED_ROUTES_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_LLM_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    METADATA_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    include_unconfigured_routes: bool
    default_llm_protocol: LLMProtocol
    metadata_namespace: str
    limits: TokenUsageExtractionLimits
    def __init__(self, include_unconfigured_routes: _Optional[bool] = ..., default_llm_protocol: _Optional[_Union[LLMProtocol, str]] = ..., metadata_namespace: _Optional[str] = ..., limits: _Optional[_Union[TokenUsageExtractionLimits, _Mapping]] = ...) -> None: ...

class ResponseHandling(_message.Message):
    __slots__ = ("token_usage",)
    TOKEN_USAGE_FIELD_NUMBER: _ClassVar[int]
    token_usage: TokenUsageExtraction
    def __init__(self, token_usage: _Optional[_Union[TokenUsageExtraction, _Mapping]] = ...) -> None: ...

class AiProtocolManager(_message.Message):
    __slots__ = ("response_handling",)
    RESPONSE_HANDLING_FIELD_NUMBER: _ClassVar[int]
    response_handling: ResponseHandling
    def __init__(self, response_handling: _Optional[_Union[ResponseHandling, _Mapping]] = ...) -> None: ...

class ResponsePerRoute(_message.Message):
    __slots__ = ("llm_protocol",)
    LLM_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    llm_protocol: LLMProtocol
    def __init__(self, llm_protocol: _Optional[_Union[LLMProtocol, str]] = ...) -> None: ...

class AiProtocolManagerPerRoute(_message.Message):
    __slots__ = ("response",)
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    response: ResponsePerRoute
    def __init__(self, response: _Optional[_Union[ResponsePerRoute, _Mapping]] = ...) -> None: ...
