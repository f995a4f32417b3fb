"""Who holds how much of one prompt's beginning."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class PrefixTokens(NamedTuple):
    """How many tokens of one prompt's beginning the endpoints of a pool hold.

    Attributes:
        slots: the number of each endpoint's bit, by address.
        groups: (endpoints, tokens) with the most tokens first; the endpoints are the bits of an integer. Those in no
            group hold none.
    """

    slots: Mapping[str, int]
    groups: tuple[tuple[int, int], ...]


class PrefixMatch(NamedTuple):
    """The endpoints of a pool by how many blocks of a chain they hold, from its start and without a gap.

    Valid until the index that made it changes.

    Attributes:
        groups: (blocks, endpoints) with the most blocks first; the endpoints are the bits of an integer.
        slots: the number of each endpoint's bit, by address.
        addresses: the addresses by that number.
    """

    groups: tuple[tuple[int, int], ...]
    slots: Mapping[str, int]
    addresses: Sequence[str]

    def blocks(self, address: str) -> int:
        """Return how many blocks ``address`` holds."""
        slot = self.slots.get(address)
        if slot is not None:
            for blocks, endpoints in self.groups:
                if endpoints >> slot & 1:
                    return blocks
        return 0

    def tokens(self, block_tokens: int, most: int) -> "PrefixTokens | None":
        """Return how many tokens that is, with blocks of this size, and never more than ``most``.

        ``None`` where nobody holds any.
        """
        if not self.groups:
            return None
        return PrefixTokens(
            self.slots, tuple([(endpoints, min(most, blocks * block_tokens)) for blocks, endpoints in self.groups])
        )

    def best(self, most: int, turn: float = 0.0) -> Iterator[str]:
        """Iterate over at most ``most`` endpoints, those that hold the most first.

        Among equals it begins at ``turn``, 0 to 1, of the way through them, so that not always the same ones are named.
        """
        left = most
        first = int(turn * len(self.addresses))
        for _, endpoints in self.groups:
            behind = endpoints >> first << first
            for part in (behind, endpoints ^ behind):
                while part and left:
                    lowest = part & -part
                    yield self.addresses[lowest.bit_length() - 1]
                    part ^= lowest  # noqa: PLW2901  the bits that are left of it
                    left -= 1


NO_MATCH = PrefixMatch((), {}, ())
"""Nobody holds anything."""
