"""Asking the engine for a stream's usage where the client did not: ``stream_options.include_usage``, put into the body.

The body is changed in that one place and keeps every other byte: a body that is read and written anew would lose what
its client meant by its order, its numbers and its escapes, and what the engine's prefix cache knows of it.
"""

import re
from typing import Any, Final

import msgspec

from extproc import body as bodies

_OPTIONS: Final = "stream_options"
_ASKED: Final = "include_usage"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \t\r\n"

MAX_WORK: Final = 67_108_864
"""Bytes that are read, at most, to find which of several members of the same name is the body's own."""


class _Body(msgspec.Struct):
    stream: Any = None
    stream_options: msgspec.Raw = msgspec.Raw()


def injected(body: bytes) -> bytes | None:
    """Return ``body`` with usage asked for, ``None`` where nothing is to be changed.

    Nothing is changed where no stream is asked for, where the client asked for usage itself, where ``stream_options``
    is of a wrong type, and in what cannot be read as UTF-8. Never raises.
    """
    mark = _BYTE_ORDER_MARK if body.startswith(_BYTE_ORDER_MARK) else b""
    plain = body[len(mark) :]
    found = _read(plain)
    if found is None:
        return None
    stream, raw, options = found
    if not bodies.truth(stream):
        return None
    changed: bytes | None = None
    if raw is None:
        changed = with_member(plain, _OPTIONS, b'{"include_usage":true}')
    elif options is None:
        changed = _replaced(plain, _OPTIONS, raw, b'{"include_usage":true}')
    elif not isinstance(options, dict) or bodies.truth(options.get(_ASKED)):
        return None
    else:
        inner = _asking(raw, options)
        changed = None if inner is None else _replaced(plain, _OPTIONS, raw, inner)
    return None if changed is None else mark + changed


def _read(body: bytes) -> tuple[Any, bytes | None, Any] | None:
    """Return ``stream``, the text of ``stream_options`` if it is there, and its value; ``None`` if unreadable."""
    try:
        fields = msgspec.json.decode(body, type=_Body)
        raw = bytes(fields.stream_options) or None
        return fields.stream, raw, None if raw is None else msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    # What only Python's parser reads has no text of a member to replace: a member can be put in where there is none.
    value = bodies.read_by_python(body)
    if value is None or _OPTIONS in value:
        return None
    return value.get("stream"), None, None


def _asking(raw: bytes, options: dict[str, Any]) -> bytes | None:
    """Return the text of an object with usage asked for."""
    if _ASKED not in options:
        return with_member(raw, _ASKED, b"true")
    value = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])[_ASKED]
    return _replaced(raw, _ASKED, bytes(value), b"true")


def with_member(text: bytes, name: str, value: bytes) -> bytes:
    """Return the object ``text`` with another member, which is its first."""
    start = text.index(b"{") + 1
    comma = b"" if text[start:].lstrip(_SPACE).startswith(b"}") else b","
    return text[:start] + b'"' + name.encode() + b'":' + value + comma + text[start:]


def _replaced(text: bytes, name: str, old: bytes, new: bytes) -> bytes | None:
    """Return the object ``text`` with ``old``, the value of its member ``name``, replaced; ``None`` if not found.

    An object inside may have a member that looks the same. Which is the right one shows in what is read afterwards.
    """
    pattern = re.compile(rb'"' + name.encode() + rb'"[ \t\r\n]*:[ \t\r\n]*(?=' + re.escape(old) + rb")")
    work = 0
    for place in pattern.finditer(text):
        work += len(text)
        if work > MAX_WORK:
            return None
        changed = text[: place.end()] + new + text[place.end() + len(old) :]
        try:
            members = msgspec.json.decode(changed, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if bytes(members.get(name, b"")) == new:
            return changed
    return None
