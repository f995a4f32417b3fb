"""What a body may not say where there are tenants: engines schedule by a ``priority`` that anybody can write.

vLLM takes lower numbers first and SGLang higher ones, so there is none that claims nothing but 0, which both take for
no priority at all.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from extproc import body as bodies
from extproc.body import ParsedBody
from extproc.errors import ApiError

REASON = "priority_claimed"


class _Claim(msgspec.Struct):
    priority: Any = None


_NOTHING = ParsedBody("", ())


def checked(parse: Callable[[bytes], ParsedBody]) -> Callable[[bytes], ParsedBody]:
    """Return ``parse`` with an error, 400, for a body that claims a priority."""

    def parse_unclaimed(body: bytes) -> ParsedBody:
        parsed = parse(body)
        if _may_claim(body):
            _check(body)
        return parsed

    return parse_unclaimed


def _may_claim(body: bytes) -> bool:
    """Return whether the word may be there: as it is, in escapes, or in UTF-16 and UTF-32, which begin with zeros."""
    return b"priority" in body or b"\\u" in body or b"\0" in body[:8]


def _check(body: bytes) -> None:
    try:
        bodies.read(body, _Claim, _refuse)
    except ApiError as error:
        # What is no JSON, as a form is none, was taken for what it is already.
        if error.reason == REASON or error.code == "duplicate_parameter":
            raise


def _refuse(claim: _Claim) -> ParsedBody:
    if claim.priority is None or (claim.priority == 0 and not isinstance(claim.priority, str)):
        return _NOTHING
    raise ApiError(
        400,
        "'priority' is not for clients to set here: their tier has one.",
        reason=REASON,
        param="priority",
        code="unsupported_parameter",
    )
