"""In how many exchanges a request is asked about: one where its body is sure to come, two where it may not.

In one, ext_proc is sent the whole body with some headers beside it, and nothing has been answered before the decision.
Envoy 1.40 never asks about a request without a body that way, so that needs headers to be sent first: two exchanges.
A route says which it is, because Envoy reads a filter's settings from the route that matched before the decision.
"""

from envoy_data_plane.envoy.config.route import v3 as route
from envoy_data_plane.envoy.extensions.filters.http.ext_proc import v3 as ext_proc
from envoy_data_plane.envoy.type.matcher import v3 as matcher
from envoy_data_plane.google.protobuf import Any

from tidegate.config import Config
from tidegate.config_routes import header_names
from xds import credentials, edge_headers

ATTRIBUTES = (
    "request.method",
    "request.path",
    "request.headers['x-request-id']",
    "request.headers['content-type']",
    "request.headers['content-encoding']",
    "request.headers['anthropic-version']",
    "request.headers['x-session-id']",
)
"""What is sent beside the body in place of the headers. (``request.headers`` as a whole comes as a useless text.)"""


def also_read(config: Config) -> tuple[str, ...]:
    """Return the headers that the configuration has a decision read, besides those that it always reads."""
    session = config.session
    named = dict.fromkeys(
        (
            session.header,
            "cookie" if session.cookie else None,
            *credentials.of_callers(config),
            *header_names(config.routes),
        )
    )
    return tuple(name for name in named if name and f"request.headers['{name}']" not in ATTRIBUTES)


def attributes(config: Config) -> list[str]:
    """Return all that is sent beside the body; what Envoy knows of who asks, beside the headers as well."""
    known = config.authentication.attributes if config.tenants else ()
    return [*ATTRIBUTES, *(f"request.headers['{name}']" for name in also_read(config)), *known]


CHANGES_HEADERS = "x-request-timeout"
"""The request header whose answer is a header for Envoy, which in one exchange it would not take."""

PRIORITY_HEADER = "x-request-priority"
"""The request header that says what a request is worth to its client; few have it, so it is none of the attributes."""

OBJECTIVE_HEADER = edge_headers.OBJECTIVE
"""Likewise by name, where there are objectives."""


_SEND, _SKIP = ext_proc.ProcessingModeHeaderSendMode.SEND, ext_proc.ProcessingModeHeaderSendMode.SKIP


def processing_mode(*, headers: bool) -> ext_proc.ProcessingMode:
    """Return the mode that sends the whole body, after the ``headers`` or without them, and nothing of the answer."""
    return ext_proc.ProcessingMode(
        request_header_mode=_SEND if headers else _SKIP,
        request_body_mode=ext_proc.ProcessingModeBodySendMode.BUFFERED,
        request_trailer_mode=_SKIP,
        response_header_mode=_SKIP,
        response_body_mode=ext_proc.ProcessingModeBodySendMode.NONE,
        response_trailer_mode=_SKIP,
    )


def in_one() -> Any:
    """Return the setting of the filter, for a route, by which it asks in one exchange."""
    return Any.pack(
        ext_proc.ExtProcPerRoute(overrides=ext_proc.ExtProcOverrides(processing_mode=processing_mode(headers=False)))
    )


ANY_LENGTH, SHORT = "0*[1-9][0-9]*", "0*[1-9][0-9]{0,4}"
"""The lengths of bodies, in decimal; the latter below 100,000 bytes."""


def in_one_alone(config: Config) -> list[route.HeaderMatcher]:
    """Return the headers of a request that can be asked about in one exchange: a POST that gives its length.

    Where there is none, a body may come all the same: in chunks over HTTP/1.1 (Envoy takes ``transfer-encoding`` away
    before it looks for a route), unannounced over HTTP/2. Asking about it in two exchanges is never wrong.

    Where there are tenants, a long body is nobody's until its headers were looked at: it is not taken from strangers.
    """
    length = matcher.StringMatcher(safe_regex=matcher.RegexMatcher(regex=SHORT if config.tenants else ANY_LENGTH))
    named = (CHANGES_HEADERS, PRIORITY_HEADER, *((OBJECTIVE_HEADER,) if config.objectives else ()))
    return [
        route.HeaderMatcher(name=":method", string_match=matcher.StringMatcher(exact="POST")),
        route.HeaderMatcher(name="content-length", string_match=length),
        *(route.HeaderMatcher(name=name, present_match=False) for name in named),
    ]
