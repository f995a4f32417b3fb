"""What replicas have in flight by endpoint, as they tell each other through Redis.

Each writes all of its own, and reads what the others wrote of late. Addresses are hashed, like all names there. What
one writes is bounded, and so is what one reads: endpoints and replicas beyond that are not known of, as if there were
no Redis.
"""

import base64
import binascii
import heapq
import operator
import struct
from collections.abc import Callable, Iterable
from typing import Final

from tidegate.fleet.others import Others
from tidegate.sharing.operations import Operation

LEASE_SECONDS: Final = 2.0
"""After so long nobody believes what a replica wrote last, which may be no more; by Redis's clock."""

MOST_ENDPOINTS: Final = 4_096
"""Endpoints that one replica writes: those with the most tokens, where there are more with anything in flight."""

MOST_CHARACTERS: Final = 256 * 1024
"""What one replica reads at a time: 8,192 endpoints of all replicas together, 7 ms of this process (measured)."""

_RECORD: Final = struct.Struct("<8s4I")
_MOST: Final = 2**32 - 1


def tell(own: Iterable[tuple[str, Others]], name: Callable[[str], bytes]) -> Operation:
    """Tell what is in flight by address, and ask what others told; ``name`` gives what an address is called."""
    most = list(own)
    if len(most) > MOST_ENDPOINTS:
        most = heapq.nlargest(MOST_ENDPOINTS, most, key=lambda one: one[1].tokens)
    told = b"".join([_RECORD.pack(name(address), *map(_bounded, others)) for address, others in most])
    return ["inflight", base64.b64encode(told).decode(), LEASE_SECONDS, MOST_CHARACTERS]


def others(result: str) -> dict[bytes, Others]:
    """Return by name what all others told; what cannot be read of it is not known."""
    found: dict[bytes, Others] = {}
    for told in result.split():
        try:
            records = list(_RECORD.iter_unpack(base64.b64decode(told, validate=True)))
        except (binascii.Error, ValueError, struct.error):
            continue
        for name, *figures in records:
            known = found.get(name)
            found[name] = Others(*figures) if known is None else Others(*map(operator.add, known, figures))
    return found


def _bounded(figure: int) -> int:
    return 0 if figure < 0 else min(figure, _MOST)
