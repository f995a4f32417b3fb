"""One stream of the endpoint picker protocol: bytes in, bytes out, whatever the transport.

Here the request's end is the stream's end: the access log belongs to the gateway. So what was reserved is released when
the stream ends, whichever way it does, and not before.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable

from extproc import picker_codec
from extproc.desk import Desk
from extproc.exchange import Abandoned
from extproc.picker_gateway import Gateway
from extproc.picker_messages import BodyMode, Piece, RequestHeaders, ResponseHeaders, ResponsePiece
from extproc.picker_request import PickerRequest
from extproc.picker_stream import Action, Event, Phase, PickerStream, ResponsePhase
from extproc.stream import LocalProtocolError

UPLOAD_SECONDS = 900.0
"""The longest that a request may take to come. Gateways give up earlier on clients that fall silent."""

ANSWER_SECONDS = 86_400.0
"""The longest that a stream may take. A gateway that vanishes is noticed by keepalive; this is for one that forgets."""

_NOTHING_YET = ResponsePhase.WAIT_RESPONSE

_GOOD_ENDS = frozenset({Phase.OPEN, Phase.SENT, Phase.OVER, Phase.ANSWERING})


class PickerExchange:
    """One stream, for a transport to serve.

    Attributes:
        seconds: the longest that it may take.
        lasts: whether that begins anew with each reply.
        at_once: whether it needs no task before its first wait.
    """

    seconds = ANSWER_SECONDS
    lasts = False
    at_once = False

    def __init__(self, desk: Desk, gateway: Gateway) -> None:
        """Count and decide at ``desk``, and keep account with ``gateway``."""
        self._began = time.monotonic()
        self._stream = PickerStream()
        self._request = PickerRequest(desk, gateway, self._began)

    @property
    def finished(self) -> bool:
        """Whether the gateway may end the stream now, and nothing is lost."""
        return self._stream.phase in _GOOD_ENDS

    async def replies(self, messages: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Answer the ``messages`` (``ProcessingRequest``) of the stream; as ``exchange.exchange`` does.

        Raises:
            PeerProtocolError: the gateway does not keep to the protocol.
            Abandoned: it ended its side before it had a decision.
        """
        actions: tuple[Action, ...] = (Action.RECEIVE,)
        try:
            while actions:
                todo, actions = actions, ()
                for action in todo:
                    if action in _SENDING:
                        for reply in self._replies(action):
                            yield reply
                    else:
                        actions = await self._do(action, messages)
        finally:
            ended = self._stream.response is ResponsePhase.RESPONDED
            # Of an answer whose body is not shown, the headers are all.
            headers_alone = self._stream.modes.response is BodyMode.NONE and self._stream.response is not _NOTHING_YET
            self._request.leave(time.monotonic(), ended=ended, whole=ended or headers_alone)

    async def _do(self, action: Action, messages: AsyncIterator[bytes]) -> tuple[Action, ...]:
        stream, request = self._stream, self._request
        match action, stream.message:
            case Action.RECEIVE, _:
                return await self._receive(messages)
            case Action.MATCH, RequestHeaders() as headers:
                return stream.step(request.match(headers))
            case Action.KEEP, Piece(body):
                return stream.step(request.keep(body))
            case Action.DECIDE, _:
                return stream.step(await request.decide(partial=stream.modes.request))
            case Action.DECIDE_UNREAD, _:
                return stream.step(request.decide_unread())
            case Action.SETTLE, _:
                request.settled()
                return stream.step(Event.DELIVERED)
            case Action.GIVE_UP, _:
                raise Abandoned
            case _:
                raise LocalProtocolError(f"{action.name} after the wrong message")

    @property
    def _in_full(self) -> bool:
        """Whether the answer's body goes on in the pieces that we send."""
        return self._stream.modes.response is BodyMode.FULL_DUPLEX_STREAMED

    async def _receive(self, messages: AsyncIterator[bytes]) -> tuple[Action, ...]:
        if self._stream.phase is not Phase.HOLDING:
            message = await anext(messages, None)
        else:
            try:
                async with asyncio.timeout(max(0.0, self._began + UPLOAD_SECONDS - time.monotonic())):
                    message = await anext(messages, None)
            except TimeoutError:
                return self._stream.step(self._request.too_slow())
        return self._stream.receive(None if message is None else picker_codec.decode(message))

    def _replies(self, action: Action) -> Iterable[bytes]:
        """Return what is to be sent."""
        request = self._request
        replies: Iterable[bytes]
        match action, self._stream.message:
            case Action.PASS_RESPONSE_HEADERS, ResponseHeaders() as headers:
                shown = not headers.end_of_stream and self._stream.modes.response is not BodyMode.NONE
                replies = (request.responded(headers, shown=shown, ours=shown and self._in_full),)
            case Action.PASS_RESPONSE_PIECE, ResponsePiece(body, end):
                request.read(body, time.monotonic())
                if not self._in_full:
                    replies = (picker_codec.PASS_RESPONSE_PIECE,)
                else:
                    passed = request.restored(body, end=end)
                    replies = picker_codec.echoed_response(passed, end=end) if passed or end or not body else ()
            case Action.PASS_RESPONSE_TRAILERS, _:
                rest = request.restored(b"", end=True)
                replies = picker_codec.echoed_response(rest, end=False) if rest else ()
                replies = itertools.chain(replies, (picker_codec.PASS_RESPONSE_TRAILERS,))
            case Action.ROUTE_HEADERS, _:
                replies = (request.decision_on_headers(),)
            case Action.ROUTE_BODY, _:
                replies = (request.decision_on_body(),)
            case Action.ECHO, _:
                replies = picker_codec.echoed(request.sent_on, end=True)
            case Action.ECHO_TRAILED, _:
                replies = picker_codec.echoed(request.sent_on, end=False)
                replies = itertools.chain(replies, (picker_codec.PASS_TRAILERS,))
            case Action.REFUSE, _:
                replies = (request.refusal(),)
            case _:
                replies = (_FIXED[action],)
        return replies


_FIXED = {
    Action.CONTINUE: picker_codec.CONTINUE,
    Action.PASS_PIECE: picker_codec.PASS_PIECE,
    Action.PASS_TRAILERS: picker_codec.PASS_TRAILERS,
}

_SENDING = frozenset(
    {
        *_FIXED,
        Action.ROUTE_HEADERS,
        Action.ROUTE_BODY,
        Action.ECHO,
        Action.ECHO_TRAILED,
        Action.REFUSE,
        Action.PASS_RESPONSE_HEADERS,
        Action.PASS_RESPONSE_PIECE,
        Action.PASS_RESPONSE_TRAILERS,
    }
)
