"""One stream of the h2 transport: messages in, messages out, and no more of either than was agreed.

What a message in the making needs is acknowledged to the peer as it comes, so that a body larger than the window can
pass. What lies behind a message that nobody has taken yet is not: the peer's window closes, and the stream holds one
message and one window at most.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from extproc import transport
from extproc.exchange import Abandoned
from extproc.h2_framing import Deframer, framed
from extproc.h2_interfaces import NO_MEMORY, Wire
from extproc.transport import Ending, Status, UnreadableMessage

_CUT_SHORT = Ending(Status.INTERNAL, "the stream ended within a message")


class MessageStream:
    """The messages of one stream; an iterator for what comes, ``write`` for what goes.

    Attributes:
        id: its number on the connection.
        answered: whether the response has begun.
    """

    __slots__ = (
        "_began",
        "_closed",
        "_deframer",
        "_ended",
        "_fault",
        "_held",
        "_readable",
        "_ready",
        "_seconds",
        "_unread",
        "_waiting",
        "_wire",
        "answered",
        "id",
    )

    def __init__(self, wire: Wire, stream_id: int, max_message_bytes: int) -> None:
        self.id = stream_id
        self._wire = wire
        self._began = wire.now()
        self._seconds = transport.STREAM_SECONDS
        self._deframer = Deframer(max_message_bytes)
        self._ready: deque[bytes] = deque()
        self._readable: Callable[[], None] | None = None
        self._unread = 0
        self._held = 0
        self.answered = False
        self._ended = False
        self._closed = False
        self._fault: UnreadableMessage | None = None
        # Whoever serves a stream waits for a message or for room, never for both.
        self._waiting: asyncio.Future[None] | None = None

    # -- what the connection says

    def receive(self, data: bytes, flow_controlled: int) -> None:
        """Take in ``data``, which took ``flow_controlled`` bytes of the window, padding included."""
        within_limits = True
        if self._fault is None:
            before = self._deframer.held
            try:
                complete = self._deframer.feed(data)
            except UnreadableMessage as fault:
                self._fault = fault
            else:
                self._ready.extend(complete)
                within_limits = self._hold(sum(map(len, complete)) + self._deframer.held - before)
        if self._ready or self._fault is not None:
            self._unread += flow_controlled
            self.wake()
        else:
            self._wire.acknowledge(self.id, flow_controlled)
        if not within_limits:
            self._fault = UnreadableMessage(NO_MEMORY)
            self.wake()

    def end(self) -> None:
        """Take note that the peer sends no more."""
        self._ended = True
        if self._deframer.held and self._fault is None:
            self._fault = UnreadableMessage(_CUT_SHORT)
        self.wake()

    def when_readable(self, begin: Callable[[], None]) -> None:
        """Have ``begin`` called, ``afterwards``, when there is first something to read, if only the end."""
        self._readable = begin

    def wake(self) -> None:
        """Have whoever serves the stream look again: something has come, or there is room."""
        if self._readable is not None:
            if self._ready or self._ended or self._fault is not None:
                begin, self._readable = self._readable, None
                self._wire.afterwards(begin)
        elif self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def drain(self) -> None:
        """Do nothing: an exchange comes to its end by itself."""

    def limit(self, seconds: float) -> None:
        """Let it last for ``seconds``, instead of ``STREAM_SECONDS``."""
        self._seconds = seconds

    def restart(self) -> None:
        """Let it last for as long again, from now on."""
        self._began = self._wire.now()

    def is_over(self) -> bool:
        """Return whether it has lasted for longer than it may."""
        return self.late(asyncio.get_running_loop().time())

    def late(self, now: float) -> bool:
        """Return whether it has lasted for longer than it may, by the event loop's clock."""
        return now - self._began > self._seconds

    def close(self) -> None:
        """Drop everything: the stream is over. What was not acknowledged still counts against the connection."""
        self._closed = True
        self._readable = None
        self._ready.clear()
        self._deframer = Deframer(0)
        self._hold(-self._held)
        if self._unread:
            unread, self._unread = self._unread, 0
            self._wire.acknowledge(self.id, unread)

    # -- what the stream's task does

    def __aiter__(self) -> "MessageStream":
        return self

    async def __anext__(self) -> bytes:
        """Return the next message.

        Raises:
            StopAsyncIteration: the peer sends no more.
            UnreadableMessage: what comes next is not taken.
        """
        while not self._ready:
            if self._fault is not None:
                raise self._fault
            if self._ended or self._closed:
                raise StopAsyncIteration
            await self._wait()
        message = self._ready.popleft()
        self._hold(-len(message))
        if self._unread and not self._ready:
            unread, self._unread = self._unread, 0
            self._wire.acknowledge(self.id, unread)
        return message

    async def write(self, message: bytes) -> None:
        """Send ``message``, as fast as the peer's windows let it.

        Raises:
            Abandoned: the stream is over.
        """
        data = framed(message)
        while True:
            if self._closed:
                raise Abandoned
            if not self.answered:
                self.answered = True
                self._wire.begin_response(self.id)
            room = self._wire.room(self.id)
            if room >= len(data):
                self._wire.send(self.id, data)
                return
            if room > 0:
                self._wire.send(self.id, data[:room])
                data = data[room:]
            else:
                await self._wait()

    async def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _hold(self, change: int) -> bool:
        self._held += change
        return self._wire.hold(change)
