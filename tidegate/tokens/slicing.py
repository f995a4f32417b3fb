"""Cutting a text into slices that are counted one by one.

The time to encode a slice is bounded where that of a text is not: some inputs are slow or break the tokenizer when
they are long (a million spaces exceed the stack of its regular expressions). Cut where tokens end anyway, slices of
16 KB add up to the count of the whole within 0.03 % (measured on prose, code, JSON, base64, digits and emoji).
"""

import re
from collections.abc import Iterator
from typing import Final

LIMIT: Final = 16_384
"""Bytes of UTF-8 in a slice. One takes 1.5 ms to encode, 5 ms at worst (measured)."""

# Where tokens end: behind a line break that a word follows, and before a space between two words. The greedy beginning
# finds the last such place.
_AFTER_LINE: Final = re.compile(r"[\s\S]*\n(?=[A-Za-z0-9])")
_AFTER_WORD: Final = re.compile(r"[\s\S]*[A-Za-z0-9](?= [A-Za-z])")
_NEAR: Final = 2_048
"""Characters from the end in which a safe place is looked for; to look further costs more than an unsafe one."""


def utf8_length(text: str) -> int:
    """Return the bytes that ``text`` takes in UTF-8, three for a lone surrogate."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def slices(text: str, limit: int = LIMIT) -> Iterator[str]:
    """Cut ``text`` into pieces of at most ``limit`` bytes (4 or more) that, joined, are the text again."""
    at = 0
    while at < len(text):
        piece = _fitting(text[at : at + limit], limit)
        end = at + len(piece)
        if end < len(text):
            end = _safe_cut(text, at, end)
        yield text[at:end]
        at = end


def _fitting(text: str, limit: int) -> str:
    """Return the longest beginning of ``text`` that takes at most ``limit`` bytes."""
    if text.isascii():
        return text[:limit]
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit:
        return text
    while data[limit] & 0xC0 == 0x80:  # in the middle of a character
        limit -= 1
    return data[:limit].decode("utf-8", "surrogatepass")


def _safe_cut(text: str, start: int, end: int) -> int:
    """Return the last safe place near the end of ``text[start:end]``, or ``end`` where there is none."""
    first = max((start + end + 1) // 2, end - _NEAR)
    # The patterns look one and two characters ahead, so they may see as many behind the end and match up to it.
    match = _AFTER_LINE.match(text, first, end + 1) or _AFTER_WORD.match(text, first, end + 2)
    return match.end() if match else end
