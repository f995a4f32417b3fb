"""What the parts of the h2 transport ask of each other: the server, its connections, their streams."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from extproc.transport import Ending, Status

if TYPE_CHECKING:
    import asyncio
    import ssl

SERVER_STOPS = Ending(Status.UNAVAILABLE, "the server stops")
NO_MEMORY = Ending(Status.RESOURCE_EXHAUSTED, "too many bytes of requests are held already")


class Wire(Protocol):
    """What a stream asks of its connection."""

    def now(self) -> float:
        """Return when the peer was last heard, by the event loop's clock."""
        ...

    def acknowledge(self, stream_id: int, size: int) -> None:
        """Give the peer ``size`` bytes of its window back."""
        ...

    def room(self, stream_id: int) -> int:
        """Return how many bytes may be sent now."""
        ...

    def begin_response(self, stream_id: int) -> None:
        """Send the response headers."""
        ...

    def send(self, stream_id: int, data: bytes) -> None:
        """Send ``data``, for which there is room."""
        ...

    def end_ours(self, stream_id: int, ending: Ending) -> None:
        """Say the last word on a stream that has not been answered, and go on reading it until the peer ends it too."""
        ...

    def hold(self, change: int) -> bool:
        """Take note that so many bytes more (less, if negative) are held; return whether they all may be."""
        ...

    def afterwards(self, act: Callable[[], None]) -> None:
        """Have ``act`` called in this turn, when all that has come is taken in: the stream may have ended by then."""
        ...


class Stream(Protocol):
    """What a connection tells a stream.

    Attributes:
        id: its number on the connection.
        answered: whether the response has begun.
    """

    id: int
    answered: bool

    def receive(self, data: bytes, flow_controlled: int) -> None:
        """Take in ``data``, which took ``flow_controlled`` bytes of the window, padding included."""
        ...

    def end(self) -> None:
        """Take note that the peer sends no more."""
        ...

    def wake(self) -> None:
        """Look again: there may be room."""
        ...

    def drain(self) -> None:
        """Take note that the server stops: a stream that would last for ever says so to its peer."""
        ...

    def late(self, now: float) -> bool:
        """Return whether it has lasted too long, by the event loop's clock."""
        ...

    def close(self) -> None:
        """Drop everything: the stream is over."""
        ...


class Call:
    """A stream, and what serves it.

    Attributes:
        stream: the stream.
        task: the task that serves it, if it takes one and has begun to wait.
    """

    __slots__ = ("_drop", "_start", "stream", "task")

    def __init__(
        self, stream: Stream, start: Callable[["Call"], None] | None = None, drop: Callable[[], None] | None = None
    ) -> None:
        """Serve ``stream``.

        Args:
            stream: the stream.
            start: begins to serve it, when there is something to do; ``None`` where nothing has to be begun.
            drop: called instead, where it never came to that.
        """
        self.stream = stream
        self.task: asyncio.Task[None] | None = None
        self._start, self._drop = start, drop

    def start(self) -> None:
        """Begin, unless that was done before, or it is too late."""
        if self._start is not None:
            start, self._start = self._start, None
            start(self)

    def check(self, now: float) -> None:
        """Stop serving it if its time is over, by the event loop's clock; it will say so itself."""
        if self.stream.late(now):
            self.start()
            if self.task is not None:
                self.task.cancel()

    def cancel(self) -> None:
        """Stop serving it."""
        self.stream.close()
        if self.task is not None:
            self.task.cancel()
        elif self._start is not None:
            self._start = None
            if self._drop is not None:
                self._drop()


Finish = Callable[[Stream, Ending], None]
"""Ends a stream as what serves it says."""


class Host(Protocol):
    """What a connection asks of its server."""

    def joined(self, connection: Any) -> bool:
        """Take in ``connection``; return whether it may stay."""
        ...

    def admits(self, peer: "ssl.SSLObject") -> bool:
        """Return whether ``peer`` may call anything."""
        ...

    def left(self, connection: Any) -> None:
        """Forget it."""
        ...

    def has_room(self) -> bool:
        """Return whether one more stream may be opened."""
        ...

    def hold(self, change: int) -> bool:
        """Take note that so many bytes more (less, if negative) are held; return whether they all may be."""
        ...

    def begin(self, path: bytes, wire: Wire, stream_id: int, finish: Finish) -> Call | None:
        """Serve a new stream by the method at ``path``; ``None`` when there is none.

        ``finish`` is to be called with the stream and its ending, unless the stream is closed before.
        """
        ...
