"""Calls that may never return, each with a deadline.

A lane has one thread. A call that misses its deadline is abandoned with its thread, and the next one gets a new thread,
until as many hang as the lane may lose; from then on it refuses, until one of them comes back.
"""

import asyncio
import concurrent.futures
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

MAX_HUNG = 2
"""Threads that a lane may lose: one for the call that hung, one for trying again."""

T = TypeVar("T")

_Job = tuple["concurrent.futures.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class Hung(Exception):  # noqa: N818 - what happened, not whose error it is
    """A call missed its deadline, or as many as may hang do."""


class Lane:
    """One thread for one device, replaced when it hangs."""

    def __init__(self, name: str, deadline: float, max_hung: int = MAX_HUNG) -> None:
        """Give each call ``deadline`` seconds, and lose at most ``max_hung`` threads."""
        self._name = name
        self._deadline = deadline
        self._max_hung = max_hung
        self._thread: _Thread | None = None
        self._hung: list[_Thread] = []

    @property
    def hung(self) -> int:
        """How many calls still hang."""
        self._hung = [thread for thread in self._hung if thread.is_alive()]
        return len(self._hung)

    async def call(self, function: Callable[..., T], *arguments: Any, grace: float = 0.0) -> T:
        """Return what ``function`` does, or raise what it raises; ``grace`` seconds are added to the deadline.

        One call at a time: the caller waits for one before the next.

        Raises:
            Hung: it did not return in time, or the lane has no thread left to lose.
        """
        if self._thread is None:
            if self.hung >= self._max_hung:
                raise Hung(f"{self._name}: {self.hung} calls hang")
            self._thread = _Thread(self._name)
            self._thread.start()
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._thread.jobs.put((future, function, arguments))
        done, _ = await asyncio.wait((asyncio.wrap_future(future),), timeout=self._deadline + grace)
        if not done:
            self._thread.jobs.put(None)  # it ends once it comes back
            self._hung.append(self._thread)
            self._thread = None
            raise Hung(f"{self._name}: no answer within {self._deadline + grace:g} s")
        return done.pop().result()

    def close(self) -> None:
        """Let the thread end."""
        if self._thread is not None:
            self._thread.jobs.put(None)
            self._thread = None


class _Thread(threading.Thread):
    """Does one job after the other until it gets ``None``. A daemon: a call that hangs must not keep us from ending."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            future, function, arguments = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = function(*arguments)
            except Exception as error:  # noqa: BLE001 - it is raised again where the call was made
                future.set_exception(error)
            else:
                future.set_result(result)
