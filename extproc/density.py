"""How much a JSON body holds, counted before anything is built of it.

msgspec builds a value for everything in a field that is needed, and holds the interpreter while it does. 31 MB of
``[],[],`` take it 1.7 s and of ``{"a":{}},`` 2.2 s, at 1 GB of memory and more, and every other request waits; a text
of the same size takes it 10 ms, or 70 ms where all of it is escapes (measured, as everything here). So what is outside
the strings is counted first, in slices of less than a millisecond each: 14 ms in all for 31 MB that are one text, 90 ms
for one full of escapes, 290 ms at worst. Between slices other threads have their turn.
"""

from typing import Final

from extproc.errors import ApiError

UNCHECKED_BYTES: Final = 524_288
"""A body up to this size is not counted: at its densest it is read in 40 ms."""

CONTAINER_WEIGHT: Final = 8
KEY_WEIGHT: Final = 5
"""What an array or object, and a member of an object, cost beside the comma that separates them, which counts 1: the
30 ns that a token id takes. An empty array takes 120 ns, an object 70 to 350 ns, a key that was not seen before 180."""

MAX_WEIGHT: Final = 1_200_000
"""A million token ids pass, and 57,000 messages; 40 to 55 ms at worst."""

MAX_DIGITS: Final = 10_000_000
"""Digits of all numbers together: a million token ids have five to seven million."""

MAX_NUMBER_DIGITS: Final = 400
"""Digits of one number: as many as the largest double has when written out, and more. Reading a number takes time in
the square of its length: 31 MB of integers of 4,000 digits take 0.6 s."""

_SLICE: Final = 65_536
_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_TOO_LONG: Final = b"0" * (MAX_NUMBER_DIGITS + 1)


def check(body: bytes) -> None:
    """Refuse ``body`` when reading it would take too long.

    Where it is no JSON in UTF-8 the counts mean nothing, and reading it ends where it ceases to be.

    Raises:
        ApiError: 413, it holds more of something than the constants here allow.
    """
    if len(body) <= UNCHECKED_BYTES:
        return
    weight = digits = 0
    inside = False
    pending = tail = b""
    for start in range(0, len(body), _SLICE):
        piece, pending = _without_escapes(pending + body[start : start + _SLICE])
        parts = piece.split(b'"')
        outside = b"".join(parts[inside::2]).translate(_ZEROS)
        inside ^= len(parts) % 2 == 0
        weight += CONTAINER_WEIGHT * (outside.count(b"[") + outside.count(b"{"))
        weight += KEY_WEIGHT * outside.count(b":") + outside.count(b",")
        digits += outside.count(b"0")
        if weight > MAX_WEIGHT:
            raise _too_dense(
                f"{MAX_WEIGHT} values, of which an array or object counts {CONTAINER_WEIGHT + 1}, "
                f"and a member of an object {KEY_WEIGHT + 1}"
            )
        if digits > MAX_DIGITS:
            raise _too_dense(f"{MAX_DIGITS} digits")
        if _TOO_LONG in (joined := tail + outside):
            raise _too_dense(f"{MAX_NUMBER_DIGITS} digits in one number")
        tail = joined[-MAX_NUMBER_DIGITS:]


def _without_escapes(piece: bytes) -> tuple[bytes, bytes]:
    r"""Return ``piece`` without any ``\\`` and ``\"``, and a backslash at its end that belongs to the next one."""
    if b"\\" not in piece:
        return piece, b""
    ends_within = (len(piece) - len(piece.rstrip(b"\\"))) % 2
    kept = piece[:-1] if ends_within else piece
    return kept.replace(b"\\\\", b"").replace(b'\\"', b""), b"\\" * ends_within


def _too_dense(most: str) -> ApiError:
    message = f"The request's body holds too much besides text. It may hold at most {most}."
    return ApiError(413, message, reason="request_too_dense", code="request_too_dense")
