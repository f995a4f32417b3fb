"""What every transport of the exchange does alike: which method it serves, its limits, and how a stream ends."""

import asyncio
import enum
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import NamedTuple, Protocol

from extproc.desk import Desk
from extproc.exchange import Abandoned, exchange
from extproc.stream import PeerProtocolError, Phase, Stream

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
METHOD = "Process"

STREAM_SECONDS = 900.0
"""The longest that a stream may take, an upload's time included, or an answer may be silent. Envoy gives up long
before, and then cancels the stream; this is for an Envoy that does not."""

ENVELOPE_BYTES = 1_048_576
"""What a message may hold besides the body: headers, attributes, metadata."""

_log = logging.getLogger(__name__)


class Outcome(enum.Enum):
    """How a stream ended."""

    FINISHED = "finished"
    """A decision or a refusal was delivered."""
    CANCELLED = "cancelled"
    """Envoy ended it before it had a decision or a refusal, mostly because the client left."""
    FAILED = "failed"
    """It ended with an error status."""


class Observer(Protocol):
    """Counts streams. Neither method may raise."""

    def stream_started(self) -> None:
        """Take note of a stream that Envoy opened."""
        ...

    def stream_ended(self, outcome: Outcome) -> None:
        """Take note of its end; called once for each that was started."""
        ...


class Exchange(Protocol):
    """What is held on one stream, whichever protocol it follows."""

    @property
    def seconds(self) -> float:
        """The longest that the stream may take."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the peer may end the stream now, and nothing is lost."""
        ...

    @property
    def lasts(self) -> bool:
        """Whether it may last as long as there is something to do: its time begins anew with each reply."""
        ...

    @property
    def at_once(self) -> bool:
        """Whether it needs no task before its first wait, because what needs one gives way first."""
        ...

    def replies(self, messages: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Answer ``messages``; as ``exchange.exchange`` does."""
        ...


class Deadline(Protocol):
    """When a stream is over at the latest, where the transport keeps that for all its streams with one timer."""

    def is_over(self) -> bool:
        """Return whether the time is over, and the task that serves the stream was cancelled for that."""
        ...

    def restart(self) -> None:
        """Begin the time anew."""
        ...


Begin = Callable[[Desk], Exchange]
"""Returns what is to be held on a new stream."""


class OneDecision:
    """The exchange that ends with the decision."""

    def __init__(self, desk: Desk) -> None:
        """Count and decide at ``desk``."""
        self._desk = desk
        self._stream = Stream()

    @property
    def seconds(self) -> float:
        """The longest that the stream may take."""
        return STREAM_SECONDS

    @property
    def finished(self) -> bool:
        """Whether a refusal was sent: having it is reason enough for Envoy to end the stream."""
        return self._stream.phase is Phase.ANSWERING

    @property
    def lasts(self) -> bool:
        """Whether it passes an answer on, which takes as long as the engine does."""
        return self._stream.phase is Phase.PASSING

    @property
    def at_once(self) -> bool:
        """It needs no task before its first wait."""
        return True

    def replies(self, messages: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Answer ``messages``."""
        return exchange(messages, self._desk, self._stream)


class Status(enum.IntEnum):
    """The gRPC status codes with which this program ends a stream (grpc/doc/statuscodes.md)."""

    OK = 0
    CANCELLED = 1
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class Ending(NamedTuple):
    """The status to end a stream with, and the words that go with an error."""

    status: Status
    details: str = ""


class UnreadableMessage(Exception):  # noqa: N818  it reads as what it says
    """A message that the transport does not take; ``ending`` says why."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.details)
        self.ending = ending


async def serve(  # noqa: PLR0911  one for each way to end
    messages: AsyncIterator[bytes],
    write: Callable[[bytes], Awaitable[None]],
    held: Exchange,
    observer: Observer,
    deadline: Deadline | None = None,
) -> Ending:
    """Hold one stream's exchange; return how the stream is to be ended: with OK only when the last reply was written.

    Args:
        messages: what Envoy sends; may raise ``UnreadableMessage``.
        write: writes a reply; raises ``Abandoned`` when the stream is dead.
        held: what is held on the stream.
        observer: who counts streams.
        deadline: of a transport that keeps ``held.seconds`` itself, and cancels this task when they are over.
    """
    observer.stream_started()
    outcome = Outcome.FAILED
    try:
        if deadline is not None:
            await _answer(messages, write, held, deadline.restart)
        else:
            async with asyncio.timeout(held.seconds) as timer:
                await _answer(messages, write, held, lambda: _restart(timer, held.seconds))
        outcome = Outcome.FINISHED
        return Ending(Status.OK)
    except asyncio.CancelledError:
        if deadline is not None and deadline.is_over():
            return _took_too_long(held)
        outcome = _of_one_that_left(held)
        raise
    except Abandoned:
        outcome = _of_one_that_left(held)
        return Ending(Status.CANCELLED, "the stream was ended before the decision")
    except PeerProtocolError as error:
        _log.warning("Envoy does not keep to the protocol", extra={"fields": {"reason": str(error)}})
        return Ending(Status.FAILED_PRECONDITION, f"unexpected: {error}")
    except UnreadableMessage as error:
        _log.warning("a message is not taken", extra={"fields": {"reason": error.ending.details}})
        return error.ending
    except TimeoutError:
        return _took_too_long(held)
    except Exception as error:  # noqa: BLE001  whatever went wrong, the stream must not end with OK
        # The class alone: a message might quote the request.
        _log.error("a stream failed", extra={"fields": {"error": type(error).__name__}})
        return Ending(Status.INTERNAL, "the decision failed")
    finally:
        observer.stream_ended(outcome)


async def _answer(
    messages: AsyncIterator[bytes],
    write: Callable[[bytes], Awaitable[None]],
    held: Exchange,
    restart: Callable[[], None],
) -> None:
    """Write all replies; ``restart`` begins the time of an exchange that lasts anew."""
    replies = held.replies(messages)
    try:
        async for reply in replies:
            await write(reply)
            if held.lasts:
                restart()
    finally:
        await replies.aclose()


def _restart(timer: asyncio.Timeout, seconds: float) -> None:
    timer.reschedule(asyncio.get_running_loop().time() + seconds)


def _took_too_long(held: Exchange) -> Ending:
    _log.warning("a stream took too long", extra={"fields": {"seconds": held.seconds}})
    return Ending(Status.DEADLINE_EXCEEDED, "the stream took too long")


def _of_one_that_left(held: Exchange) -> Outcome:
    """Return the outcome of a stream that its peer ended."""
    return Outcome.FINISHED if held.finished else Outcome.CANCELLED
