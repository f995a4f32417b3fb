"""Asking the engine for another model than the client named: the name is replaced where it stands in the body.

Every other byte stays as it is, as where usage is asked for (``injection``), and what cannot be changed that way is
refused: a request must not get to an engine under a name that it was not to have.
"""

import json
import re
from typing import Any, Final

import msgspec

from extproc import body as bodies
from extproc.errors import ApiError
from extproc.injection import MAX_WORK, with_member

_MEMBER: Final = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*("(?:[^"\\]|\\.)*+"|null)')


class _Body(msgspec.Struct):
    model: Any = None


def renamed(name: str, body: bytes) -> bytes | None:
    """Return ``body``, which asks for a model, asking for ``name``; ``None`` where that cannot be done.

    It cannot where the member's own name is written with escapes, in UTF-16 and UTF-32, and where the body is so large,
    and so many of the objects in it have such a member too, that it would take too long. Never raises.
    """
    before = _model(body)
    if before == name:
        return body
    value = json.dumps(name, ensure_ascii=False).encode()
    work = 0
    for place in _MEMBER.finditer(body):
        work += len(body)
        if work > MAX_WORK:
            return None
        # An object inside may have such a member too. Which is the body's own shows in what is read afterwards.
        changed = body[: place.start(1)] + value + body[place.end(1) :]
        if _model(changed) == name:
            return changed
    if before is not None or not body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return None
    changed = with_member(body, "model", value)
    return changed if _model(changed) == name else None


def _model(body: bytes) -> Any:
    """Return what the member ``model`` of an object says; ``None`` where it says nothing or cannot be read."""
    try:
        return msgspec.json.decode(body, type=_Body).model
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = bodies.read_by_python(body)
        return None if value is None else value.get("model")


def refused_compressed() -> ApiError:
    """Return the error for a compressed body whose model is to be renamed."""
    return ApiError(
        415,
        "The body of this request must not be compressed.",
        reason="unsupported_encoding",
        code="unsupported_content_encoding",
        headers={"accept-encoding": "identity"},
    )


def refused() -> ApiError:
    """Return the error for a body in which the model cannot be renamed."""
    return ApiError(
        400,
        "'model' must be written plainly, in a JSON object in UTF-8, for this gateway to send the request on.",
        param="model",
        code="invalid_value",
    )
