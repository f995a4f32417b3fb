"""The blocks of an engine's KV cache: who holds them, and what the free ones still remember.

A block that is full and whose content is known bears a key; the key stands for everything from the start of the prompt
to the end of the block, so equal keys mean equal prefixes. A block that nobody holds is free, and keeps its content
until it is handed out again: the least recently used first (vLLM's ``BlockPool``).
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol


class Listener(Protocol):
    """Is told what the cache comes to hold and to lose."""

    def stored(self, key: Hashable) -> None:
        """The block ``key`` can be found now."""
        ...

    def removed(self, key: Hashable) -> None:
        """It can be found no longer."""
        ...

    def cleared(self) -> None:
        """No block can be found any more."""
        ...


class KVCache:
    """A fixed number of blocks, shared by the requests that have a prefix in common."""

    def __init__(self, num_blocks: int) -> None:
        """Start with ``num_blocks`` empty blocks, all free."""
        self.listener: Listener | None = None
        self._holders = [0] * num_blocks
        self._keys: list[Hashable | None] = [None] * num_blocks
        self._by_key: dict[Hashable, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_blocks(self) -> int:
        """Blocks in all."""
        return len(self._holders)

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds, those with remembered content included."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the blocks that somebody holds, 0 to 1. What free blocks remember does not count, as in vLLM."""
        return 1.0 - len(self._free) / len(self._holders)

    def match(self, keys: Iterable[Hashable]) -> list[int]:
        """Return the blocks of the longest run of ``keys``, from the first, whose content is there."""
        found: list[int] = []
        for key in keys:
            block = self._by_key.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def fits(self, reused: Sequence[int], fresh: int) -> bool:
        """Return whether ``fresh`` empty blocks would be left once the ``reused`` ones are held."""
        return fresh <= len(self._free) - sum(1 for block in reused if not self._holders[block])

    def hold(self, blocks: Sequence[int]) -> None:
        """Hold ``blocks``, as ``match`` returned them; others may hold them too."""
        for block in blocks:
            self._holders[block] += 1
            self._free.pop(block, None)

    def take(self, fresh: int) -> list[int] | None:
        """Hold ``fresh`` empty blocks and return them; ``None``, nothing being changed, when there are not enough."""
        if fresh > len(self._free):
            return None
        return [self._take_oldest() for _ in range(fresh)]

    def publish(self, block: int, key: Hashable) -> None:
        """Let the content of ``block`` be found by ``key``; of two blocks with the same, the first is found."""
        if self._keys[block] is None and key not in self._by_key:
            self._keys[block] = key
            self._by_key[key] = block
            if self.listener is not None:
                self.listener.stored(key)

    def release(self, blocks: Sequence[int]) -> None:
        """Give up one hold on each of ``blocks``, which stand in the order of the request.

        The last ones become free first: a prefix is worth more than what follows it.
        """
        for block in reversed(blocks):
            self._holders[block] -= 1
            if not self._holders[block]:
                self._free[block] = None

    def clear(self) -> bool:
        """Forget the content of all blocks; as in vLLM, while any is held nothing happens, and it returns ``False``."""
        if len(self._free) != len(self._holders):
            return False
        self._keys = [None] * len(self._keys)
        self._by_key.clear()
        if self.listener is not None:
            self.listener.cleared()
        return True

    def _take_oldest(self) -> int:
        block, _ = self._free.popitem(last=False)
        key = self._keys[block]
        if key is not None:
            del self._by_key[key]
            self._keys[block] = None
            if self.listener is not None:
                self.listener.removed(key)
        self._holders[block] = 1
        return block
