"""Counts of texts that were counted before: a chat sends its whole history again with every turn."""

import hashlib
import threading
from collections import OrderedDict


class CountCache:
    """The least recently used texts' counts, by digest; safe to use from several threads. No text is kept.

    A chat template puts special tokens between messages, so their counts add up, and a count per text is exact.
    """

    def __init__(self, entries: int) -> None:
        """Keep at most ``entries`` counts, about 170 bytes each; 0 keeps none."""
        self._entries = entries
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._counts)

    @staticmethod
    def key(encoding: str, text: str) -> bytes:
        """Return the key of ``text`` under an encoding; 0.5 µs and 1.3 ms per MB (measured)."""
        data = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=16, person=encoding.encode()).digest()

    def get(self, key: bytes) -> int | None:
        """Return the count kept under ``key``, which then counts as just used."""
        with self._lock:
            count = self._counts.get(key)
            if count is not None:
                self._counts.move_to_end(key)
            return count

    def put(self, key: bytes, count: int) -> None:
        """Keep ``count``; forget the least recently used one where the cache is full."""
        with self._lock:
            self._counts[key] = count
            self._counts.move_to_end(key)
            if len(self._counts) > self._entries:
                self._counts.popitem(last=False)
