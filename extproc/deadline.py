"""How long a client gives its whole request, by a header of its own.

Envoy keeps the deadline: it is told in ``grpc-timeout``, the one header by which the duration of a whole stream can be
set per request, and counts from the request's first byte. (``x-envoy-upstream-rq-timeout-ms`` would do for the answer
alone, and Envoy's outlier detection holds such a timeout against the endpoint: a client with short deadlines would have
endpoints ejected.) What is kept here is the wait for the decision, of which Envoy knows nothing yet.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Final

from extproc.errors import ApiError, wrong_value

HEADER: Final = "x-request-timeout"

TOLD_BY: Final = "grpc-timeout"
"""The header that tells Envoy; a client's own is taken out at the edge."""

MOST: Final = 86_400.0
"""Seconds in a day. ``grpc-timeout`` has room for eight digits, of milliseconds."""

SLACK_SECONDS: Final = 0.05

_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}", re.ASCII)


def of_headers(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a request may take, ``None`` where its client does not say.

    Raises:
        ApiError: 400, the header is no such number of seconds.
    """
    text = headers.get(HEADER)
    if text is None:
        return None
    seconds = float(text) if _DECIMAL.fullmatch(text.strip()) else 0.0
    if not 0.001 <= seconds <= MOST:
        raise wrong_value(HEADER, f"a number of seconds from 0.001 to {MOST:.0f}, such as 2.5, given once")
    return seconds


def is_over(until: float) -> bool:
    """Return whether it is ``until``, by the event loop's clock, or so soon that it makes no difference.

    uvloop's clock stands still while it runs its callbacks; whoever reads another one is ahead of it by that.
    """
    return asyncio.get_running_loop().time() >= until - SLACK_SECONDS


def told(seconds: float) -> str:
    """Return ``seconds`` as Envoy is told them."""
    return f"{max(1, round(seconds * 1000))}m"


def missed() -> ApiError:
    """Return the error for a request whose time was over before it was decided on."""
    return ApiError(
        504,
        f"The request was not decided on within its '{HEADER}'.",
        reason="deadline",
        kind="server_error",
        param=HEADER,
        code="timeout",
    )
