"""One answer's exchange with Envoy: every piece comes here, and goes back as it is to be passed on.

What was read is left in Envoy's own metadata, where the access log finds it: so a request has one observation, whoever
served its answer's exchange, and none is lost with a process that dies. It is written with the first text, whenever the
answer has grown by a quarter, when it turns out to have failed, and at the end; in between, the access log's reader
infers from the bytes that were sent. That is a constant number of times for each doubling, not one for each token.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final, NamedTuple

from extproc.answer import Answer
from extproc.stream import AnswerHeaders

GROWTH: Final = 1.25
"""By how much an answer grows until what was read of it is told again."""


class AnswerPiece(NamedTuple):
    """The next bytes of its body."""

    body: bytes
    end_of_stream: bool


class Facts(NamedTuple):
    """What has been read of an answer so far.

    Attributes:
        over: all of it was read.
        failed: it says that the request failed.
        bytes: how much of the body was read.
        output_tokens: what the engine said of those, and an estimate of what it did not.
        prompt: as in ``Tokens``; so are ``completion``, which is told only once it is final, ``cached`` and
            ``reasoning``.
    """

    over: bool
    failed: bool
    bytes: int
    output_tokens: int
    prompt: int | None
    completion: int | None
    cached: int | None
    reasoning: int | None


class HeadersPassed(NamedTuple):
    """The reply to the headers."""

    without_length: bool


class PiecePassed(NamedTuple):
    """The reply to a piece: the bytes instead of it, ``None`` for those that came; and what is known, if it is told."""

    body: bytes | None
    facts: Facts | None


Reply = HeadersPassed | PiecePassed


async def passing(
    begun: AnswerHeaders, messages: AsyncIterator[bytes], read: Callable[[bytes], AnswerPiece]
) -> AsyncGenerator[Reply, None]:
    """Answer the headers and then every piece, until the last; sooner if there is nothing to be read.

    Args:
        begun: the headers.
        messages: what Envoy sends.
        read: reads a message; raises ``PeerProtocolError`` if it is no piece of an answer.
    """
    status = begun.headers.get(":status", "")
    answer = Answer(
        begun.headers.get("content-type", ""), begun.headers.get("content-encoding", ""), withhold=begun.withhold
    )
    # A stream that loses an event is shorter than it said.
    yield HeadersPassed(without_length=begun.withhold and answer.streamed)
    # Envoy takes the end of this exchange for leave to pass the rest on: an attempt that failed may be followed by
    # another, and tells nothing.
    if begun.end_of_stream or not status.startswith("2"):
        return
    told = _Telling()
    async for message in messages:
        piece = read(message)
        passed = answer.feed(piece.body, 0.0)
        if piece.end_of_stream:
            passed += answer.end(0.0)
        changed = None if passed == piece.body else passed
        yield PiecePassed(changed, told.of(answer, over=piece.end_of_stream))
        if piece.end_of_stream:
            return


class _Telling:
    """Decides when what is known is told."""

    __slots__ = ("_bytes", "_failed", "_text")

    def __init__(self) -> None:
        self._bytes = 0
        self._text = self._failed = False

    def of(self, answer: Answer, *, over: bool) -> Facts | None:
        """Return what is known of ``answer`` if it is to be told now."""
        new = (bool(answer.text_bytes), answer.failed) != (self._text, self._failed)
        if not (over or new or answer.bytes >= self._bytes * GROWTH):
            return None
        self._bytes, self._text, self._failed = answer.bytes, bool(answer.text_bytes), answer.failed
        return facts(answer, over=over)


def facts(answer: Answer, *, over: bool) -> Facts:
    """Return what is known of ``answer``."""
    tokens = answer.tokens
    final = over and (answer.ended or answer.finished)
    return Facts(
        over=over,
        failed=answer.failed,
        bytes=answer.bytes,
        output_tokens=answer.estimated_completion_tokens(),
        prompt=tokens.prompt,
        completion=tokens.completion if final else None,
        cached=tokens.cached,
        reasoning=tokens.reasoning if final else None,
    )
