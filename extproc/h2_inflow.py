"""A stream of the h2 transport on which messages only come, for as long as the peer lives: Envoy's access log.

Each message is handed on in the same turn that completes it, without a task: there is nothing to wait for, and so
nothing lies between what the peer sent and whom it concerns when the stream or the server ends.
"""

from collections.abc import Callable

from extproc.h2_framing import Deframer, framed
from extproc.h2_interfaces import NO_MEMORY, SERVER_STOPS, Finish, Wire
from extproc.transport import Ending, Status, UnreadableMessage

MESSAGE_BYTES = 67_108_864
"""The largest message that is taken. Envoy's batches are of a few kilobytes, or of what it has held back meanwhile."""

Reader = Callable[[bytes], None]
"""Takes one message. Whatever it holds, it raises nothing."""

_ANSWER = framed(b"")
_NO_ROOM = Ending(Status.RESOURCE_EXHAUSTED, "no room for the answer")


class Inflow:
    """One stream, and who reads it.

    Attributes:
        id: its number on the connection.
        answered: whether the response has begun.
    """

    __slots__ = ("_closed", "_deframer", "_finish", "_held", "_on_close", "_read", "_wire", "answered", "id")

    def __init__(self, wire: Wire, stream_id: int, read: Reader, finish: Finish, on_close: Callable[[], None]) -> None:
        self.id = stream_id
        self.answered = False
        self._wire = wire
        self._read = read
        self._finish = finish
        self._on_close = on_close
        self._deframer = Deframer(MESSAGE_BYTES)
        self._held = 0
        self._closed = False

    def receive(self, data: bytes, flow_controlled: int) -> None:
        """Hand on the messages that ``data`` completes, and give the peer its window back."""
        self._wire.acknowledge(self.id, flow_controlled)
        try:
            messages = self._deframer.feed(data)
        except UnreadableMessage as fault:
            self._finish(self, fault.ending)
            return
        for message in messages:
            self._read(message)
        change, self._held = self._deframer.held - self._held, self._deframer.held
        if not self._wire.hold(change):
            self._finish(self, NO_MEMORY)

    def end(self) -> None:
        """Answer a peer that sends no more: with one empty message, as a call of this kind is answered."""
        if self._wire.room(self.id) < len(_ANSWER):
            self._finish(self, _NO_ROOM)
            return
        if not self.answered:
            self.answered = True
            self._wire.begin_response(self.id)
            self._wire.send(self.id, _ANSWER)
        self._finish(self, Ending(Status.OK))

    def wake(self) -> None:
        """Do nothing: nothing waits."""

    def drain(self) -> None:
        """Ask the peer to go elsewhere, and read on until it has heard it: what it sent before that is not lost."""
        if not self.answered:
            self.answered = True
            self._wire.end_ours(self.id, SERVER_STOPS)

    def late(self, now: float) -> bool:  # noqa: ARG002
        """Return ``False``: it is to last."""
        return False

    def close(self) -> None:
        """Forget a message that did not come to its end."""
        if self._closed:
            return
        self._closed = True
        self._deframer = Deframer(0)
        self._wire.hold(-self._held)
        self._held = 0
        self._on_close()
