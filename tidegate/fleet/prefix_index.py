"""Which endpoints of a pool probably hold the beginning of a prompt in their KV cache.

A prompt's beginning is a chain of block hashes: each stands for its block and all before it. An engine can use a cached
block only while every block before it is there too, so what counts is how many blocks match from the start without a
gap; one that is missing ends the match, whatever is held behind it.

For every hash the index keeps the endpoints that hold it as the bits of an integer, so that one operation a block asks
about all of them. Each endpoint's blocks are bounded by its KV cache and leave in the order of their last use. The
blocks of a chain are used from the last to the first: a block is always older than the one before it and leaves
earlier, as in the engines themselves, so that no cached beginning loses its head and keeps a useless tail.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidegate.fleet.prefix_match import NO_MATCH, PrefixMatch

DEFAULT_CAPACITY_TOKENS = 500_000
"""Tokens of KV cache of an endpoint that does not say (llm-d's default: 31,250 blocks of 16)."""

MAX_BLOCKS = 500_000
"""The most blocks that the index of a fleet holds, counting a block once for each endpoint that has it: 100 MB
(measured, with 1,000 endpoints)."""


class PrefixIndex:
    """The blocks that the endpoints of one pool hold.

    Endpoints are known by their address and, inside, by a small number, their slot.
    """

    __slots__ = ("_addresses", "_capacity", "_free", "_held", "_holders", "_most", "_slots")

    def __init__(self) -> None:
        """Begin without endpoints."""
        # One holder is written as ~slot, several as the sum of their bits: most blocks have one holder, and an integer
        # with bit 9,999 takes more than a kilobyte.
        self._holders: dict[int, int] = {}
        self._held: list[OrderedDict[int, None]] = []
        self._capacity: list[int] = []
        self._slots: dict[str, int] = {}
        self._addresses: list[str] = []
        self._free: list[int] = []
        self._most = MAX_BLOCKS

    def __len__(self) -> int:
        """Return how many blocks are held, each counted once for each holder."""
        return sum(map(len, self._held))

    @property
    def slots(self) -> Mapping[str, int]:
        """The endpoints' numbers by address."""
        return self._slots

    def admit(self, addresses: Iterable[str], most: int = MAX_BLOCKS) -> None:
        """Take ``addresses`` for the whole pool; others are forgotten. None is to hold more than ``most`` blocks."""
        wanted = dict.fromkeys(addresses)
        self._most = max(1, most)
        for address in [address for address in self._slots if address not in wanted]:
            self.forget(address)
            slot = self._slots.pop(address)
            self._addresses[slot] = ""
            self._capacity[slot] = DEFAULT_CAPACITY_TOKENS
            self._free.append(slot)
        for address in wanted:
            if address not in self._slots:
                self._slots[address] = self._new_slot(address)
        for slot in self._slots.values():
            self._shrink(slot, self._most)

    def _new_slot(self, address: str) -> int:
        if self._free:
            slot = self._free.pop()
            self._addresses[slot] = address
            return slot
        self._addresses.append(address)
        self._held.append(OrderedDict())
        self._capacity.append(DEFAULT_CAPACITY_TOKENS)
        return len(self._held) - 1

    def resize(self, address: str, capacity_tokens: float | None) -> None:
        """Say how many tokens the KV cache of ``address`` has room for; ``None`` when it is not known."""
        slot = self._slots.get(address)
        if slot is not None:
            self._capacity[slot] = DEFAULT_CAPACITY_TOKENS if capacity_tokens is None else int(capacity_tokens)

    def hold(self, address: str, hashes: Sequence[int], block_tokens: int) -> None:
        """Note that ``address`` will hold the chain ``hashes``, of ``block_tokens`` tokens each.

        Of a chain that is longer than the cache only the beginning is kept.
        """
        slot = self._slots.get(address)
        if slot is None or not hashes:
            return
        room = min(self._most, self._capacity[slot] // max(1, block_tokens))
        held, holders = self._held[slot], self._holders
        for number in reversed(hashes[:room]):
            if number in held:
                held.move_to_end(number)
                continue
            held[number] = None
            before = holders.get(number)
            if before is None:
                holders[number] = ~slot
            else:
                holders[number] = _bits(before) | 1 << slot
        self._shrink(slot, room)

    def drop(self, address: str, hashes: Iterable[int]) -> None:
        """Note that ``address`` no longer holds these blocks."""
        slot = self._slots.get(address)
        if slot is None:
            return
        held = self._held[slot]
        for number in hashes:
            if number in held:
                del held[number]
                self._no_holder(number, slot)

    def forget(self, address: str) -> None:
        """Note that ``address`` holds nothing any more: its engine began anew, or its cache was cleared."""
        slot = self._slots.get(address)
        if slot is not None:
            self._shrink(slot, 0)

    def match(self, hashes: Sequence[int]) -> PrefixMatch:
        """Return who holds how much of the chain ``hashes``. Takes one step for each block that anybody holds."""
        holders = self._holders
        if not hashes or hashes[0] not in holders:
            return NO_MATCH
        groups: list[tuple[int, int]] = []
        live = _bits(holders[hashes[0]])
        for depth, number in enumerate(hashes):
            here = holders.get(number, 0)
            if here < 0:
                here = 1 << ~here
            here &= live
            if here != live:
                groups.append((depth, live ^ here))
                live = here
                if not live:
                    break
        else:
            groups.append((len(hashes), live))
        groups.reverse()
        return PrefixMatch(tuple(groups), self._slots, self._addresses)

    def held(self, address: str) -> Iterator[int]:
        """Iterate over the blocks of ``address``, those that leave first going first."""
        slot = self._slots.get(address)
        return iter(() if slot is None else self._held[slot])

    def _shrink(self, slot: int, size: int) -> None:
        held = self._held[slot]
        while len(held) > size:
            number, _ = held.popitem(last=False)
            self._no_holder(number, slot)

    def _no_holder(self, number: int, slot: int) -> None:
        holders = self._holders
        rest = _bits(holders[number]) & ~(1 << slot)
        if not rest:
            del holders[number]
        else:
            holders[number] = ~(rest.bit_length() - 1) if rest & (rest - 1) == 0 else rest


def _bits(holders: int) -> int:
    return 1 << ~holders if holders < 0 else holders
