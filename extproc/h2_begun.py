"""Serving a stream in the very turn that its message came in, and with a task only from where it has to wait.

Nearly every request is decided without a wait. A task for it costs as much as choosing its endpoint does: to make it,
to have it called in the next turn, to wait in it for a message that is there already.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any


class Begun(Coroutine[Any, Any, None]):
    """A coroutine that has begun and waits, in a form that a task can go on with.

    Before its first wait there is no current task: what needs one (``asyncio.timeout``) gives way first, with
    ``asyncio.sleep(0)``.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, None], waits_for: object) -> None:
        """Go on with ``coroutine``, which gave ``waits_for`` to be awaited."""
        self._coroutine = coroutine
        self._first: tuple[object, ...] = (waits_for,)

    def send(self, value: Any) -> Any:
        """Go on; the first time, give what is waited for already."""
        if self._first:
            (waits_for,), self._first = self._first, ()
            return waits_for
        return self._coroutine.send(value)

    def throw(self, *fault: Any) -> Any:
        """Raise ``fault`` where the coroutine waits."""
        self._first = ()
        try:
            return self._coroutine.throw(*fault)
        finally:
            # Its traceback has this frame in it. The two would keep each other, and all that the coroutine held, until
            # the collector comes.
            del fault

    def close(self) -> None:
        """End the coroutine where it waits."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        """Await the rest of it, for whoever is no task."""
        while True:
            try:
                waits_for = self.send(None)
            except StopIteration:
                return
            yield waits_for


def begin(coroutine: Coroutine[Any, Any, None], go_on: Callable[[Begun], object]) -> bool:
    """Run ``coroutine`` to its end or to its first wait, from where ``go_on`` goes on; return whether it ended."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return True
    go_on(Begun(coroutine, waits_for))
    return False
