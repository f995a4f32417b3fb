"""An engine's KV cache, counted instead of listed.

The same rules as ``tidegate.simulator.kv_cache``: free blocks are handed out in the order in which they became free,
and keep their content until then. What became free at once is one entry of the queue here, however many blocks it has,
and a key stands for a run of blocks (a *unit*), as the traces' hash ids do. So a request costs a few steps, not one per
block.
"""

from collections import OrderedDict
from collections.abc import Sequence

from tidegate.simulator.profiles import BLOCK_SIZE


def blocks_for(tokens: int) -> int:
    """Return how many blocks hold ``tokens``."""
    return -(-tokens // BLOCK_SIZE)


class BlockStore:
    """A fixed number of blocks; ``free`` of them are held by nobody."""

    __slots__ = ("_free", "_holders", "free", "total")

    def __init__(self, total: int) -> None:
        """Start with ``total`` empty blocks, all free."""
        self.total = total
        self.free = total
        self._holders: dict[int, int] = {}
        self._free: OrderedDict[object, int] = OrderedDict()
        if total:
            self._free[object()] = total

    def match(self, keys: Sequence[int]) -> int:
        """Return how many of ``keys``, from the first and without a gap, have their content there."""
        found = 0
        for key in keys:
            if key not in self._holders and key not in self._free:
                break
            found += 1
        return found

    def fits(self, reused: Sequence[int], unit: int, fresh: int) -> bool:
        """Return whether ``fresh`` blocks would be free once the units ``reused``, of ``unit`` blocks, are held."""
        if fresh > self.free:
            return False
        return fresh <= self.free - unit * sum(1 for key in reused if key not in self._holders)

    def hold(self, keys: Sequence[int]) -> None:
        """Hold the units ``keys``, whose content is there; others may hold them too."""
        for key in keys:
            holders = self._holders.get(key, 0)
            if not holders:
                self.free -= self._free.pop(key)
            self._holders[key] = holders + 1

    def take(self, blocks: int) -> None:
        """Hold ``blocks`` empty blocks, the longest free first.

        Raises:
            ValueError: there are not so many free ones.
        """
        if blocks > self.free:
            raise ValueError(f"{blocks} blocks wanted, {self.free} free")
        self.free -= blocks
        while blocks:
            key, size = self._free.popitem(last=False)
            if size > blocks:
                # What is left of it remembers nothing whole.
                rest = object()
                self._free[rest] = size - blocks
                self._free.move_to_end(rest, last=False)
                return
            del key
            blocks -= size

    def publish(self, key: int) -> bool:
        """Let blocks that are held be found by ``key``; return whether they are: of two with the same, the first is."""
        if key in self._holders or key in self._free:
            return False
        self._holders[key] = 1
        return True

    def release(self, private: int, keys: Sequence[int], unit: int) -> None:
        """Give up ``private`` blocks without a key and one hold on each of ``keys``, units of ``unit`` blocks.

        The last ones become free first: a prefix is worth more than what follows it.
        """
        if private:
            self._free[object()] = private
            self.free += private
        for key in reversed(keys):
            holders = self._holders[key] - 1
            if holders:
                self._holders[key] = holders
            else:
                del self._holders[key]
                self._free[key] = unit
                self.free += unit
