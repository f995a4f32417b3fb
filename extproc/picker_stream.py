"""The protocol of one external-processing stream of the endpoint picker protocol, request and response, as two tables.

A gateway that owns Envoy's configuration opens the stream with the request's headers and ends it with the response. It
says in its first message in which mode it sends the bodies; one that says nothing sends them in full duplex, as the
protocol has it.

Rule 1: what may come when stands in ``REQUEST_TABLE`` and ``RESPONSE_TABLE``. A pair that is in neither is an error.

Rule 2: before the decision is delivered, nothing ends well but a refusal. After it, the gateway may end the stream at
any time, and that is the request's end.

Rule 3: the response may begin at any time. Before the decision it is a local reply of the gateway (a filter refused the
request, or a deadline passed), and nobody waits for a decision any more.

Where the decision goes depends on the request's body:

- none, or one that is not sent (NONE), or one of which we would get the first piece alone (STREAMED: its pieces come
  only when the headers are answered): in the reply to the headers, by the headers alone;
- BUFFERED, BUFFERED_PARTIAL: in the reply to the body, of which one message comes;
- FULL_DUPLEX_STREAMED: in the reply to the headers, which is held until the body or the trailers have ended. Then the
  body is sent back in pieces: Envoy forwards only what it is given.

    WAIT_HEADERS      HEADERS_ALONE     -> MATCHING_ALONE    MATCH
    WAIT_HEADERS      HEADERS_UNREAD    -> MATCHING_UNREAD   MATCH
    WAIT_HEADERS      HEADERS_ASKING    -> MATCHING_ASKING   MATCH
    WAIT_HEADERS      HEADERS_HELD      -> MATCHING_HELD     MATCH
    MATCHING_ALONE    MATCHED           -> DECIDING_ALONE    DECIDE
    MATCHING_UNREAD   MATCHED           -> DECIDING_UNREAD   DECIDE_UNREAD
    MATCHING_ASKING   MATCHED           -> WAIT_BODY         CONTINUE, RECEIVE
    MATCHING_HELD     MATCHED           -> HOLDING           RECEIVE
    WAIT_BODY         PIECE, LAST_PIECE -> KEEPING_BODY      KEEP
    KEEPING_BODY      KEPT              -> DECIDING_BODY     DECIDE
    HOLDING           PIECE             -> KEEPING           KEEP
    HOLDING           LAST_PIECE        -> KEEPING_LAST      KEEP
    HOLDING           TRAILERS          -> DECIDING_TRAILED  DECIDE
    KEEPING           KEPT              -> HOLDING           RECEIVE
    KEEPING_LAST      KEPT              -> DECIDING_HELD     DECIDE
    DECIDING_ALONE    DECIDED           -> ROUTING           ROUTE_HEADERS, SETTLE
    DECIDING_UNREAD   DECIDED           -> ROUTING_OPEN      ROUTE_HEADERS, SETTLE
    DECIDING_BODY     DECIDED           -> ROUTING_OPEN      ROUTE_BODY, SETTLE
    DECIDING_HELD     DECIDED           -> ROUTING           ROUTE_HEADERS, ECHO, SETTLE
    DECIDING_TRAILED  DECIDED           -> ROUTING           ROUTE_HEADERS, ECHO_TRAILED, SETTLE
    ROUTING           DELIVERED         -> SENT              RECEIVE
    ROUTING_OPEN      DELIVERED         -> OPEN              RECEIVE
    OPEN              PIECE             -> OPEN              PASS_PIECE, RECEIVE
    OPEN              LAST_PIECE        -> SENT              PASS_PIECE, RECEIVE
    OPEN              TRAILERS          -> SENT              PASS_TRAILERS, RECEIVE
    MATCHING_*, HOLDING, KEEPING*, DECIDING_*  REFUSED -> ANSWERING  REFUSE, SETTLE
    ANSWERING         DELIVERED         -> DONE              -
    OPEN, SENT, OVER  ENDED             -> DONE              -
    WAIT_HEADERS, WAIT_BODY, HOLDING  ENDED    -> DONE       GIVE_UP
    WAIT_HEADERS, WAIT_BODY, HOLDING  RESPONSE -> OVER       -, and what the response's table says
    OPEN, SENT, OVER  RESPONSE          -> as it was         -, and what the response's table says

    WAIT_RESPONSE     HEADERS           -> RESPONDING        PASS_RESPONSE_HEADERS, RECEIVE
    WAIT_RESPONSE     HEADERS_ALONE     -> RESPONDED         PASS_RESPONSE_HEADERS
    WAIT_RESPONSE, RESPONDING  PIECE      -> RESPONDING      PASS_RESPONSE_PIECE, RECEIVE
    WAIT_RESPONSE, RESPONDING  LAST_PIECE -> RESPONDED       PASS_RESPONSE_PIECE
    WAIT_RESPONSE, RESPONDING  TRAILERS   -> RESPONDED       PASS_RESPONSE_TRAILERS
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from extproc.picker_messages import (
    BodyMode,
    Message,
    Modes,
    Piece,
    RequestHeaders,
    ResponseHeaders,
    ResponsePiece,
    ResponseTrailers,
    Trailers,
)
from extproc.stream import LocalProtocolError, PeerProtocolError


class Phase(enum.Enum):
    """Where the request stands."""

    WAIT_HEADERS = enum.auto()
    MATCHING_ALONE = enum.auto()
    MATCHING_UNREAD = enum.auto()
    MATCHING_ASKING = enum.auto()
    MATCHING_HELD = enum.auto()
    WAIT_BODY = enum.auto()
    KEEPING_BODY = enum.auto()
    HOLDING = enum.auto()
    """Nothing is answered; the body comes in pieces."""
    KEEPING = enum.auto()
    KEEPING_LAST = enum.auto()
    DECIDING_ALONE = enum.auto()
    DECIDING_UNREAD = enum.auto()
    DECIDING_BODY = enum.auto()
    DECIDING_HELD = enum.auto()
    DECIDING_TRAILED = enum.auto()
    ROUTING = enum.auto()
    ROUTING_OPEN = enum.auto()
    OPEN = enum.auto()
    """The decision is delivered; more of the request may come, and is let pass."""
    SENT = enum.auto()
    """The decision is delivered, and all of the request with it."""
    OVER = enum.auto()
    """The gateway answered by itself."""
    ANSWERING = enum.auto()
    DONE = enum.auto()


class ResponsePhase(enum.Enum):
    """Where the response stands."""

    WAIT_RESPONSE = enum.auto()
    RESPONDING = enum.auto()
    RESPONDED = enum.auto()


class Event(enum.Enum):
    """What happens to a request."""

    HEADERS_ALONE = enum.auto()
    """No body follows."""
    HEADERS_UNREAD = enum.auto()
    """The body that follows is not for us to read before the decision."""
    HEADERS_ASKING = enum.auto()
    """The body follows when the headers are answered."""
    HEADERS_HELD = enum.auto()
    """The body follows without an answer."""
    PIECE = enum.auto()
    LAST_PIECE = enum.auto()
    TRAILERS = enum.auto()
    RESPONSE = enum.auto()
    ENDED = enum.auto()
    MATCHED = enum.auto()
    KEPT = enum.auto()
    DECIDED = enum.auto()
    REFUSED = enum.auto()
    DELIVERED = enum.auto()


OWN_EVENTS = frozenset({Event.MATCHED, Event.KEPT, Event.DECIDED, Event.REFUSED, Event.DELIVERED})


class Action(enum.Enum):
    """What is to be done next. The last action of a step brings about the next event."""

    RECEIVE = enum.auto()
    """Wait for the gateway's next message."""
    MATCH = enum.auto()
    """Find the API by the headers: MATCHED or REFUSED."""
    CONTINUE = enum.auto()
    """Ask for the body."""
    KEEP = enum.auto()
    """Keep what came of the body: KEPT, or REFUSED when it is too much."""
    DECIDE = enum.auto()
    """Choose an endpoint by what was kept: DECIDED or REFUSED."""
    DECIDE_UNREAD = enum.auto()
    """Choose one by the headers alone: DECIDED or REFUSED."""
    ROUTE_HEADERS = enum.auto()
    """Send the decision in the reply to the headers."""
    ROUTE_BODY = enum.auto()
    """Send the decision in the reply to the body."""
    ECHO = enum.auto()
    """Send the body back, its end with it."""
    ECHO_TRAILED = enum.auto()
    """Send the body back, then answer the trailers, which are its end."""
    SETTLE = enum.auto()
    """Take note that all this was taken: DELIVERED."""
    PASS_PIECE = enum.auto()
    PASS_TRAILERS = enum.auto()
    PASS_RESPONSE_HEADERS = enum.auto()
    PASS_RESPONSE_PIECE = enum.auto()
    PASS_RESPONSE_TRAILERS = enum.auto()
    REFUSE = enum.auto()
    """Have the gateway answer the client."""
    GIVE_UP = enum.auto()
    """End the stream with an error status; nobody waits for a reply."""


def _table() -> Mapping[tuple[Phase, Event], tuple[Phase, tuple[Action, ...]]]:
    p, e, a = Phase, Event, Action
    table: dict[tuple[Phase, Event], tuple[Phase, tuple[Action, ...]]] = {
        (p.WAIT_HEADERS, e.HEADERS_ALONE): (p.MATCHING_ALONE, (a.MATCH,)),
        (p.WAIT_HEADERS, e.HEADERS_UNREAD): (p.MATCHING_UNREAD, (a.MATCH,)),
        (p.WAIT_HEADERS, e.HEADERS_ASKING): (p.MATCHING_ASKING, (a.MATCH,)),
        (p.WAIT_HEADERS, e.HEADERS_HELD): (p.MATCHING_HELD, (a.MATCH,)),
        (p.MATCHING_ALONE, e.MATCHED): (p.DECIDING_ALONE, (a.DECIDE,)),
        (p.MATCHING_UNREAD, e.MATCHED): (p.DECIDING_UNREAD, (a.DECIDE_UNREAD,)),
        (p.MATCHING_ASKING, e.MATCHED): (p.WAIT_BODY, (a.CONTINUE, a.RECEIVE)),
        (p.MATCHING_HELD, e.MATCHED): (p.HOLDING, (a.RECEIVE,)),
        (p.WAIT_BODY, e.PIECE): (p.KEEPING_BODY, (a.KEEP,)),
        (p.WAIT_BODY, e.LAST_PIECE): (p.KEEPING_BODY, (a.KEEP,)),
        (p.KEEPING_BODY, e.KEPT): (p.DECIDING_BODY, (a.DECIDE,)),
        (p.HOLDING, e.PIECE): (p.KEEPING, (a.KEEP,)),
        (p.HOLDING, e.LAST_PIECE): (p.KEEPING_LAST, (a.KEEP,)),
        (p.HOLDING, e.TRAILERS): (p.DECIDING_TRAILED, (a.DECIDE,)),
        (p.KEEPING, e.KEPT): (p.HOLDING, (a.RECEIVE,)),
        (p.KEEPING_LAST, e.KEPT): (p.DECIDING_HELD, (a.DECIDE,)),
        (p.DECIDING_ALONE, e.DECIDED): (p.ROUTING, (a.ROUTE_HEADERS, a.SETTLE)),
        (p.DECIDING_UNREAD, e.DECIDED): (p.ROUTING_OPEN, (a.ROUTE_HEADERS, a.SETTLE)),
        (p.DECIDING_BODY, e.DECIDED): (p.ROUTING_OPEN, (a.ROUTE_BODY, a.SETTLE)),
        (p.DECIDING_HELD, e.DECIDED): (p.ROUTING, (a.ROUTE_HEADERS, a.ECHO, a.SETTLE)),
        (p.DECIDING_TRAILED, e.DECIDED): (p.ROUTING, (a.ROUTE_HEADERS, a.ECHO_TRAILED, a.SETTLE)),
        (p.ROUTING, e.DELIVERED): (p.SENT, (a.RECEIVE,)),
        (p.ROUTING_OPEN, e.DELIVERED): (p.OPEN, (a.RECEIVE,)),
        (p.OPEN, e.PIECE): (p.OPEN, (a.PASS_PIECE, a.RECEIVE)),
        (p.OPEN, e.LAST_PIECE): (p.SENT, (a.PASS_PIECE, a.RECEIVE)),
        (p.OPEN, e.TRAILERS): (p.SENT, (a.PASS_TRAILERS, a.RECEIVE)),
        (p.ANSWERING, e.DELIVERED): (p.DONE, ()),
    }
    for phase in Phase:
        if phase.name.startswith(("MATCHING", "HOLDING", "KEEPING", "DECIDING")):
            table[phase, e.REFUSED] = (p.ANSWERING, (a.REFUSE, a.SETTLE))
    for phase in (p.WAIT_HEADERS, p.WAIT_BODY, p.HOLDING):
        table[phase, e.ENDED] = (p.DONE, (a.GIVE_UP,))
        table[phase, e.RESPONSE] = (p.OVER, ())
    for phase in (p.OPEN, p.SENT, p.OVER):
        table[phase, e.ENDED] = (p.DONE, ())
        table[phase, e.RESPONSE] = (phase, ())
    return table


REQUEST_TABLE = _table()


class ResponseEvent(enum.Enum):
    """What comes of a response."""

    HEADERS = enum.auto()
    HEADERS_ALONE = enum.auto()
    PIECE = enum.auto()
    LAST_PIECE = enum.auto()
    TRAILERS = enum.auto()


_BODY = {
    ResponseEvent.PIECE: (ResponsePhase.RESPONDING, (Action.PASS_RESPONSE_PIECE, Action.RECEIVE)),
    ResponseEvent.LAST_PIECE: (ResponsePhase.RESPONDED, (Action.PASS_RESPONSE_PIECE,)),
    ResponseEvent.TRAILERS: (ResponsePhase.RESPONDED, (Action.PASS_RESPONSE_TRAILERS,)),
}

RESPONSE_TABLE: Mapping[tuple[ResponsePhase, ResponseEvent], tuple[ResponsePhase, tuple[Action, ...]]] = {
    (ResponsePhase.WAIT_RESPONSE, ResponseEvent.HEADERS): (
        ResponsePhase.RESPONDING,
        (Action.PASS_RESPONSE_HEADERS, Action.RECEIVE),
    ),
    (ResponsePhase.WAIT_RESPONSE, ResponseEvent.HEADERS_ALONE): (
        ResponsePhase.RESPONDED,
        (Action.PASS_RESPONSE_HEADERS,),
    ),
    **{(phase, event): step for phase in list(ResponsePhase)[:2] for event, step in _BODY.items()},
}


@dataclass(slots=True)
class PickerStream:
    """One stream: where its request and its response stand.

    Attributes:
        phase: the request's.
        response: the response's.
        modes: how the bodies are sent.
        message: what came last.
    """

    phase: Phase = Phase.WAIT_HEADERS
    response: ResponsePhase = ResponsePhase.WAIT_RESPONSE
    modes: Modes = field(default_factory=Modes)
    message: Message | None = None

    def receive(self, message: Message | None) -> tuple[Action, ...]:
        """Take in the gateway's next message, ``None`` when it has ended its side; return what to do.

        Raises:
            PeerProtocolError: it may not come now.
        """
        if isinstance(message, RequestHeaders | ResponseHeaders) and message.modes is not None:
            self.modes = message.modes
        self.message = message
        match message:
            case RequestHeaders():
                actions = self.step(self._headers(message))
            case Piece(end_of_stream=end):
                actions = self.step(Event.LAST_PIECE if end else Event.PIECE)
            case Trailers():
                actions = self.step(Event.TRAILERS)
            case ResponseHeaders(end_of_stream=end):
                actions = self._respond(ResponseEvent.HEADERS_ALONE if end else ResponseEvent.HEADERS)
            case ResponsePiece(end_of_stream=end):
                actions = self._respond(ResponseEvent.LAST_PIECE if end else ResponseEvent.PIECE)
            case ResponseTrailers():
                actions = self._respond(ResponseEvent.TRAILERS)
            case None:
                actions = self.step(Event.ENDED)
        return actions

    def step(self, event: Event) -> tuple[Action, ...]:
        """Follow the request's table; return what to do.

        Raises:
            PeerProtocolError: the gateway did what may not come now; nothing has changed.
            LocalProtocolError: the same, of an event of our own.
        """
        try:
            self.phase, actions = REQUEST_TABLE[self.phase, event]
        except KeyError:
            fault = LocalProtocolError if event in OWN_EVENTS else PeerProtocolError
            raise fault(f"{event.name} in phase {self.phase.name}") from None
        return actions

    def _respond(self, event: ResponseEvent) -> tuple[Action, ...]:
        self.step(Event.RESPONSE)
        try:
            self.response, actions = RESPONSE_TABLE[self.response, event]
        except KeyError:
            raise PeerProtocolError(f"response {event.name} in phase {self.response.name}") from None
        return actions

    def _headers(self, message: RequestHeaders) -> Event:
        if message.end_of_stream:
            return Event.HEADERS_ALONE
        match self.modes.request:
            case BodyMode.NONE | BodyMode.STREAMED:
                return Event.HEADERS_UNREAD
            case BodyMode.BUFFERED | BodyMode.BUFFERED_PARTIAL:
                return Event.HEADERS_ASKING
            case BodyMode.FULL_DUPLEX_STREAMED:
                return Event.HEADERS_HELD
