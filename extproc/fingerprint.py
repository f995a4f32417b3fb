"""By what a request is known again that is sent once more."""

import hashlib
from typing import Final

WHOLE_BYTES: Final = 4_096
"""Longer bodies are known by their length, and by as much of their beginning and of their end together: 5 us."""

_HALF: Final = WHOLE_BYTES // 2


def fingerprint(body: bytes) -> int:
    """Return a number of 64 bits, never 0, that is the same for the same ``body``, in every process."""
    hashed = hashlib.blake2b(body if len(body) <= WHOLE_BYTES else body[:_HALF], digest_size=8)
    if len(body) > WHOLE_BYTES:
        hashed.update(body[-_HALF:])
        hashed.update(str(len(body)).encode())
    return int.from_bytes(hashed.digest(), "big") or 1
