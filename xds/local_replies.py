"""What Envoy itself answers, in the form of OpenAI's errors, or of Anthropic's on its API, as client libraries read it.

The messages are fixed: Envoy's own name transport failures and internals, which are not for clients.
"""

import re
from typing import NamedTuple

from envoy_data_plane.envoy.config.accesslog import v3 as accesslog
from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.config.route import v3 as route
from envoy_data_plane.envoy.extensions.access_loggers.filters.cel import v3 as cel
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager import v3 as hcm
from envoy_data_plane.envoy.type.matcher import v3 as matcher
from envoy_data_plane.google.protobuf import Any, Struct

from tidegate.config import Config
from tidegate.config_routes import paths_speaking

HAS_A_BODY_OF_ITS_OWN = "'content-type' in response.headers"
"""An answer that ext_proc gave (a refusal) passes here too, and says what it is; Envoy's own do not, yet."""


class _Reply(NamedTuple):
    comparison: accesslog.ComparisonFilterOp
    status: int
    kind: str
    code: str
    message: str
    retry_after: str | None = None


_EQ = accesslog.ComparisonFilterOp.EQ
_GE = accesslog.ComparisonFilterOp.GE

REPLIES = (
    _Reply(_EQ, 404, "invalid_request_error", "model_not_found", "This gateway does not serve the model."),
    _Reply(_EQ, 408, "invalid_request_error", "request_timeout", "The request did not arrive in time."),
    _Reply(_EQ, 413, "invalid_request_error", "request_too_large", "The request is larger than this gateway accepts."),
    _Reply(_EQ, 426, "invalid_request_error", "http_version", "HTTP/1.0 is not served; use HTTP/1.1 or HTTP/2."),
    _Reply(_EQ, 429, "rate_limit_error", "rate_limit_exceeded", "Too many requests come to this gateway.", "1"),
    _Reply(_EQ, 431, "invalid_request_error", "headers_too_large", "The headers are larger than this gateway accepts."),
    _Reply(_EQ, 501, "invalid_request_error", "transfer_encoding", "The only transfer encoding served is chunked."),
    _Reply(_EQ, 502, "server_error", "bad_gateway", "The endpoint's answer was cut off or cannot be read."),
    _Reply(
        _EQ, 503, "server_error", "service_unavailable", "No endpoint can take this request now. Try again later.", "1"
    ),
    _Reply(_EQ, 504, "server_error", "timeout", "The answer did not come in time."),
    _Reply(_GE, 500, "server_error", "internal_error", "The gateway failed to process this request."),
    _Reply(_GE, 400, "invalid_request_error", "bad_request", "This gateway does not accept the request."),
)
"""The first that fits is used."""


ANTHROPIC_PATHS = "/v1/messages([/?].*)?"
"""A regular expression that fits the whole path, the query included."""

ANTHROPIC_APIS = ("messages", "count_tokens")

_ANTHROPIC_TYPES = {
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Of everything else the client is to blame."""


def local_reply_config(config: Config) -> hcm.LocalReplyConfig:
    """Return the mapping from Envoy's statuses to errors as OpenAI and Anthropic write them."""
    paths = "|".join((ANTHROPIC_PATHS, *map(_regex, paths_speaking(config.routes, *ANTHROPIC_APIS))))
    mappers = [mapper for reply in REPLIES for mapper in (_for_anthropic(reply, paths), _for_openai(reply))]
    return hcm.LocalReplyConfig(mappers=[_left_alone(), *mappers])


def _regex(path: str) -> str:
    return f"{re.escape(path[:-1])}.*" if path.endswith("*") else rf"{re.escape(path)}([?].*)?"


def _left_alone() -> hcm.ResponseMapper:
    expression = cel.ExpressionFilter(expression=HAS_A_BODY_OF_ITS_OWN)
    return hcm.ResponseMapper(
        filter=accesslog.AccessLogFilter(
            extension_filter=accesslog.ExtensionFilter(
                name="envoy.access_loggers.extension_filters.cel", typed_config=Any.pack(expression)
            )
        )
    )


def _for_openai(reply: _Reply) -> hcm.ResponseMapper:
    error = {"message": reply.message, "type": reply.kind, "param": None, "code": reply.code}
    return _mapper(reply, _status_is(reply), {"error": error})


def _for_anthropic(reply: _Reply, paths: str) -> hcm.ResponseMapper:
    error = {"type": _ANTHROPIC_TYPES.get(reply.status, "invalid_request_error"), "message": reply.message}
    both = accesslog.AndFilter(filters=[_status_is(reply), _path_is_one_of(paths)])
    return _mapper(reply, accesslog.AccessLogFilter(and_filter=both), {"type": "error", "error": error})


def _status_is(reply: _Reply) -> accesslog.AccessLogFilter:
    return accesslog.AccessLogFilter(
        status_code_filter=accesslog.StatusCodeFilter(
            comparison=accesslog.ComparisonFilter(
                op=reply.comparison,
                value=core.RuntimeUInt32(default_value=reply.status, runtime_key=f"tidegate.reply_{reply.status}"),
            )
        )
    )


def _path_is_one_of(paths: str) -> accesslog.AccessLogFilter:
    path = matcher.StringMatcher(safe_regex=matcher.RegexMatcher(regex=paths))
    return accesslog.AccessLogFilter(
        header_filter=accesslog.HeaderFilter(header=route.HeaderMatcher(name=":path", string_match=path))
    )


def _mapper(reply: _Reply, when: accesslog.AccessLogFilter, body: dict[str, object]) -> hcm.ResponseMapper:
    return hcm.ResponseMapper(
        filter=when,
        body_format_override=core.SubstitutionFormatString(json_format=Struct.from_dict(body)),
        headers_to_add=[_header("retry-after", reply.retry_after)] if reply.retry_after else [],
    )


def _header(name: str, value: str) -> core.HeaderValueOption:
    return core.HeaderValueOption(
        header=core.HeaderValue(key=name, value=value),
        append_action=core.HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
    )
