"""Who is sent everything at once: so many clients beside one another, whoever else comes waits.

When a control plane comes back, all of its clients do within a second. Served all together, each would wait for the
slowest, and none would be whole for long.
"""

import asyncio
from typing import Final

AT_ONCE: Final = 20

TURN_SECONDS: Final = 5.0
"""How long a client may take until another one is let in beside it."""


class Turn:
    """One client's turn, which ends when it has everything, or leaves, or takes too long."""

    def __init__(self, free: asyncio.Semaphore, seconds: float) -> None:
        self._free = free
        self._over = False
        self._timer = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        """Let another one in; only the first call counts."""
        if not self._over:
            self._over = True
            self._timer.cancel()
            self._free.release()


class Turnstile:
    """Lets clients in."""

    def __init__(self, at_once: int = AT_ONCE, seconds: float = TURN_SECONDS) -> None:
        """Let ``at_once`` in beside one another, each for ``seconds`` at most."""
        self._free = asyncio.Semaphore(at_once)
        self._seconds = seconds

    async def enter(self) -> Turn:
        """Wait for a turn, first come, first served."""
        await self._free.acquire()
        return Turn(self._free, self._seconds)
