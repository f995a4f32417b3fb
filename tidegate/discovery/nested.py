"""JSON of a directory, whose objects anybody may have written: one that is nested too deeply costs itself alone.

The parser goes down a level of the stack for each level of nesting, also where it passes over what nobody asks for, and
what holds the object, such as a list of all of them, would be lost with it.
"""

import re
from typing import Final, TypeVar

import msgspec

MAX_DEPTH: Final = 64
"""Lists and mappings within one another that are read where there are too many; what we ask for has ten."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)

_T = TypeVar("_T")


def decode(text: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    """Return ``text`` as ``kind`` says; where it is nested too deeply, with what is deepest left out.

    Raises:
        msgspec.DecodeError: it is something else, also for what was left out.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        return msgspec.json.decode(cut(bytes(text)), type=kind)


def cut(text: bytes) -> bytes:
    """Return ``text`` with ``null`` for each list and mapping that is more than ``MAX_DEPTH`` levels down."""
    kept, depth, begun = list[bytes](), 0, 0
    for token in _TOKEN.finditer(text):
        match token.group():
            case b"[" | b"{":
                depth += 1
                if depth == MAX_DEPTH + 1:
                    kept += (text[begun : token.start()], b"null")
            case b"]" | b"}":
                depth -= 1
                if depth == MAX_DEPTH:
                    begun = token.end()
    # One that never ends leaves a text that does not either.
    return b"".join([*kept, text[begun:] if depth <= MAX_DEPTH else b""])
