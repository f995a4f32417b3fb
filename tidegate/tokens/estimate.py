"""Counting without encoding everything: from a sample, and from the length alone."""

import bisect
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidegate.tokens.slicing import LIMIT, slices, utf8_length

WINDOWS: Final = 512
WINDOW: Final = 256
"""Characters. Many small windows beat few big ones: 512 of 256 are within 2.2 % at the 95th percentile on mixed
documents of 1 to 8 MB, 64 of 1024 within 8.4 % (measured); the beginning of a text says little about the rest."""

_SPARSITY: Final = 4
"""A sample is at most one part in so many of the text, so that it always costs less than the text."""
_SEPARATOR: Final = "\0"
"""Stands between windows when they are encoded together; one token, which merges with none beside it."""
_CUT: Final = 0.5
"""Tokens that a window counts too many, for those that its two ends cut (measured)."""
_PIECE: Final = 16
"""Characters of a window that a text uses up at least, which bounds the texts in a window."""
_BYTES_PER_TOKEN: Final = 4
"""Between the 4.5 of English and the 3.3 to 3.6 of JSON, which is most of the traffic; base64 has 1.5, Russian 7.1."""
_LOOK: Final = 4_096
"""Characters of a long text that are looked at to learn how many bytes its characters take."""


def by_bytes(texts: Sequence[str]) -> int:
    """Return the tokens that the length of ``texts`` suggests, at most their number of bytes; microseconds a text."""
    return math.ceil(sum(map(_about_bytes, texts)) / _BYTES_PER_TOKEN)


def _about_bytes(text: str) -> float:
    if text.isascii() or len(text) <= _LOOK:
        return utf8_length(text)
    step = len(text) // 16
    seen = [text[at : at + _LOOK // 16] for at in range(0, step * 16, step)]
    return len(text) * sum(map(utf8_length, seen)) / sum(map(len, seen))


def by_sample(texts: Sequence[str], count: Callable[[str], int], rng: random.Random, slowness: int = 1) -> int:
    """Return about how many tokens ``texts`` have, at most their number of bytes.

    The texts, end to end, are divided into equal parts, and each part is judged by a window at a random place in it.

    Args:
        texts: what to count.
        count: the exact number of tokens of a piece. It is called about ten times rather than once for each window,
            because each call gives up the interpreter and has to wait for it again.
        rng: draws the places; one that clients cannot predict keeps them from writing for the windows.
        slowness: by how much the sample, and what is counted at a time, are to be smaller.
    """
    ends = list(itertools.accumulate(map(len, texts)))
    total = ends[-1] if ends else 0
    if total == 0:
        return 0
    windows = max(1, min(WINDOWS // slowness, total // (WINDOW * _SPARSITY)))
    pieces: list[str] = []
    for number in range(windows):
        begin, end = total * number // windows, total * (number + 1) // windows
        at = begin + int(rng.random() * max(1, end - begin - WINDOW + 1))
        pieces.extend(_window(texts, ends, at))
    together = _SEPARATOR.join(pieces)
    tokens = sum(map(count, slices(together, LIMIT // slowness))) - (len(pieces) - 1) - _CUT * windows
    estimate = round(max(0.0, tokens) * total / sum(map(len, pieces)))
    # A token has a byte at least, and so has a character: bytes need counting only where tokens outnumber characters.
    return estimate if estimate <= total else min(estimate, sum(map(_length_in_parts, texts)))


def _window(texts: Sequence[str], ends: Sequence[int], at: int) -> Iterator[str]:
    """Iterate over what is seen in a window that begins at character ``at``: one piece, or more of short texts."""
    first = bisect.bisect_right(ends, at)
    offset = at - (ends[first] - len(texts[first]))
    room = WINDOW
    for index in range(first, len(texts)):
        piece = texts[index][offset : offset + room]
        yield piece
        offset = 0
        room -= max(len(piece), _PIECE)
        if room <= 0:
            return


def _length_in_parts(text: str) -> int:
    # In parts, because a thread does not give up the interpreter while it encodes.
    return sum(utf8_length(text[at : at + 65_536]) for at in range(0, len(text), 65_536))
