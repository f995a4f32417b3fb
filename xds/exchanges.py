"""In how many exchanges a request is asked about: one where its body is sure to come, two where it may not.

In one, ext_proc is sent the whole body with some headers beside it, and nothing has been answered before the decision.
Envoy 1.40 never asks about a request without a body that way, so that needs headers to be sent first: two exchanges.
A route says which it is, because Envoy reads a filter's settings from the route that matched before the decision.
"""

from envoy_data_plane.envoy.config.route import v3 as route
from envoy_data_plane.envoy.extensions.filters.http.ext_proc import v3 as ext_proc
from envoy_data_plane.envoy.type.matcher import v3 as matcher
from envoy_data_plane.google.protobuf import Any

ATTRIBUTES = (
    "request.method",
    "request.path",
    "request.headers['x-request-id']",
    "request.headers['content-type']",
    "request.headers['content-encoding']",
    "request.headers['x-session-id']",
)
"""What is sent beside the body in place of the headers. (``request.headers`` as a whole comes as a useless text.)"""

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


def with_a_body() -> list[list[route.HeaderMatcher]]:
    """Return the headers that say that a body follows: those of a POST with a length, and of one in chunks.

    A body over HTTP/2 may have neither; asking about it in two exchanges is never wrong.
    """
    post = route.HeaderMatcher(name=":method", string_match=matcher.StringMatcher(exact="POST"))
    length = matcher.StringMatcher(safe_regex=matcher.RegexMatcher(regex="0*[1-9][0-9]*"))
    chunked = matcher.StringMatcher(exact="chunked", ignore_case=True)
    return [
        [post, route.HeaderMatcher(name="content-length", string_match=length)],
        [post, route.HeaderMatcher(name="transfer-encoding", string_match=chunked)],
    ]
