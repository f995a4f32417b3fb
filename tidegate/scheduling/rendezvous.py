"""A home for every key, that stays while its endpoint does: rendezvous hashing (Thaler and Ravishankar, 1998).

Each endpoint draws a number for the key, by a hash of both; the largest wins. When an endpoint goes, only its own keys
move, each to the next in its own order; when one comes, it takes its share from all. Every process that knows the same
endpoints finds the same home, and nothing needs to be remembered.
"""

import hashlib
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_UNIT = 2.0**-52


class Weighed(Protocol):
    """What has an address and a share in proportion to its weight."""

    @property
    def address(self) -> str:
        """``ip:port``."""
        ...

    @property
    def weight(self) -> float:
        """Above 0."""
        ...


def draw(key: str) -> Callable[[Weighed], float]:
    """Return the function that says what an endpoint draws for ``key``.

    -weight / log(u), with u uniform, gives shares in proportion to the weights (Schindelhauer and Schomaker, 2005).
    """
    seed = _number(key)

    def drawn(endpoint: Weighed) -> float:
        # The finaliser of splitmix64 (Steele, Lea and Flood, 2014).
        mixed = seed ^ _of_address(endpoint.address)
        mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
        uniform = ((mixed ^ mixed >> 31) >> 12) * _UNIT
        return -endpoint.weight / math.log(uniform + _UNIT / 2)

    return drawn


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


_of_address = lru_cache(maxsize=32_768)(_number)
