"""The protocol of one external-processing stream, which is the request phase of one HTTP request, as a table.

Envoy opens a stream per request and asks in one exchange or in two. In two, it sends the headers, waits for a reply,
sends the whole body in one message (``request_body_mode: BUFFERED``) and waits for a reply; a request without a body
has its decision in the reply to its headers. In one (``request_header_mode: SKIP``), the first message is the whole
body, with the headers that a decision reads beside it. Envoy would keep the stream open until the response has ended;
we end it ourselves as soon as the decision is delivered.

Rule 1: all that decides which message may come when stands in ``TABLE``. A pair that is not in it is an error, and the
stream stays where it was.

Rule 2: a stream ends well in one way only, by delivering a decision or a refusal. Envoy takes a stream that is closed
with OK before its reply for "go on without me" and sends the request anywhere, so every other end is an error.

Rule 3: the first body message is the whole body, whatever its ``end_of_stream`` says: behind a decompressor Envoy
leaves it false.

    WAIT_REQUEST      HEADERS        -> MATCHING          MATCH
    WAIT_REQUEST      HEADERS_ALONE  -> MATCHING_ALONE    MATCH
    WAIT_REQUEST      WHOLE          -> MATCHING_WHOLE    MATCH
    WAIT_REQUEST      ENDED          -> DONE              GIVE_UP
    MATCHING          MATCHED        -> WAIT_BODY         CONTINUE, RECEIVE
    MATCHING          REFUSED        -> ANSWERING         REFUSE
    MATCHING_ALONE    MATCHED        -> DECIDING_HEADERS  DECIDE
    MATCHING_ALONE    REFUSED        -> ANSWERING         REFUSE
    MATCHING_WHOLE    MATCHED        -> DECIDING_BODY     DECIDE
    MATCHING_WHOLE    REFUSED        -> ANSWERING         REFUSE
    WAIT_BODY         BODY           -> DECIDING_BODY     DECIDE
    WAIT_BODY         ENDED          -> DONE              GIVE_UP
    DECIDING_HEADERS  DECIDED        -> DELIVERING        ROUTE_HEADERS
    DECIDING_HEADERS  REFUSED        -> ANSWERING         REFUSE
    DECIDING_BODY     DECIDED        -> DELIVERING        ROUTE_BODY
    DECIDING_BODY     REFUSED        -> ANSWERING         REFUSE
    DELIVERING        DELIVERED      -> DONE              -
    ANSWERING         DELIVERED      -> DONE              -

A stream that begins with an answer's headers is another exchange, about the answer to a request that was decided
elsewhere; ``passing`` holds it.

    WAIT_REQUEST      ANSWER         -> PASSING           PASS
    PASSING           DELIVERED      -> DONE              -
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class _Member(enum.Enum):
    """A part of the table's keys: known by what it is, where ``Enum`` hashes its name, in Python, each time."""

    __hash__ = object.__hash__


class Phase(_Member):
    """Where a stream stands."""

    WAIT_REQUEST = enum.auto()
    MATCHING = enum.auto()
    """The headers are here, the body is to come: is there such a path?"""
    MATCHING_ALONE = enum.auto()
    """The same, and there is no body."""
    MATCHING_WHOLE = enum.auto()
    """The same, and the body is here too."""
    WAIT_BODY = enum.auto()
    DECIDING_HEADERS = enum.auto()
    """The request is complete; Envoy awaits the reply to its headers."""
    DECIDING_BODY = enum.auto()
    """The request is complete; Envoy awaits the reply to its body."""
    DELIVERING = enum.auto()
    """The decision is on its way to Envoy."""
    ANSWERING = enum.auto()
    """A refusal is. Envoy ends the stream as soon as it has it, often before we know that it was written: a
    cancellation in this phase is an end like any other."""
    PASSING = enum.auto()
    """An answer is passed on. Envoy may end the stream at any time: the client or the engine left."""
    DONE = enum.auto()


class Event(_Member):
    """What happens to a stream: first what Envoy does, then what we have done."""

    HEADERS = enum.auto()
    HEADERS_ALONE = enum.auto()
    WHOLE = enum.auto()
    BODY = enum.auto()
    ANSWER = enum.auto()
    OTHER = enum.auto()
    ENDED = enum.auto()
    MATCHED = enum.auto()
    DECIDED = enum.auto()
    REFUSED = enum.auto()
    DELIVERED = enum.auto()


PEER_EVENTS = frozenset(
    {Event.HEADERS, Event.HEADERS_ALONE, Event.WHOLE, Event.BODY, Event.ANSWER, Event.OTHER, Event.ENDED}
)


class Action(enum.Enum):
    """What is to be done next. The last action of a step brings about the next event."""

    RECEIVE = enum.auto()
    """Wait for Envoy's next message."""
    MATCH = enum.auto()
    """Find the API by the headers: MATCHED or REFUSED."""
    CONTINUE = enum.auto()
    """Ask for the body."""
    DECIDE = enum.auto()
    """Choose an endpoint: DECIDED or REFUSED."""
    ROUTE_HEADERS = enum.auto()
    """Send the decision in the reply to the headers: DELIVERED."""
    ROUTE_BODY = enum.auto()
    """Send the decision in the reply to the body: DELIVERED."""
    REFUSE = enum.auto()
    """Have Envoy answer the client: DELIVERED."""
    PASS = enum.auto()
    """Pass the answer on, to its end: DELIVERED."""
    GIVE_UP = enum.auto()
    """End the stream with an error status; nobody waits for a reply."""


TABLE: Mapping[tuple[Phase, Event], tuple[Phase, tuple[Action, ...]]] = {
    (Phase.WAIT_REQUEST, Event.HEADERS): (Phase.MATCHING, (Action.MATCH,)),
    (Phase.WAIT_REQUEST, Event.HEADERS_ALONE): (Phase.MATCHING_ALONE, (Action.MATCH,)),
    (Phase.WAIT_REQUEST, Event.WHOLE): (Phase.MATCHING_WHOLE, (Action.MATCH,)),
    (Phase.WAIT_REQUEST, Event.ENDED): (Phase.DONE, (Action.GIVE_UP,)),
    (Phase.MATCHING, Event.MATCHED): (Phase.WAIT_BODY, (Action.CONTINUE, Action.RECEIVE)),
    (Phase.MATCHING, Event.REFUSED): (Phase.ANSWERING, (Action.REFUSE,)),
    (Phase.MATCHING_ALONE, Event.MATCHED): (Phase.DECIDING_HEADERS, (Action.DECIDE,)),
    (Phase.MATCHING_ALONE, Event.REFUSED): (Phase.ANSWERING, (Action.REFUSE,)),
    (Phase.MATCHING_WHOLE, Event.MATCHED): (Phase.DECIDING_BODY, (Action.DECIDE,)),
    (Phase.MATCHING_WHOLE, Event.REFUSED): (Phase.ANSWERING, (Action.REFUSE,)),
    (Phase.WAIT_BODY, Event.BODY): (Phase.DECIDING_BODY, (Action.DECIDE,)),
    (Phase.WAIT_BODY, Event.ENDED): (Phase.DONE, (Action.GIVE_UP,)),
    (Phase.DECIDING_HEADERS, Event.DECIDED): (Phase.DELIVERING, (Action.ROUTE_HEADERS,)),
    (Phase.DECIDING_HEADERS, Event.REFUSED): (Phase.ANSWERING, (Action.REFUSE,)),
    (Phase.DECIDING_BODY, Event.DECIDED): (Phase.DELIVERING, (Action.ROUTE_BODY,)),
    (Phase.DECIDING_BODY, Event.REFUSED): (Phase.ANSWERING, (Action.REFUSE,)),
    (Phase.DELIVERING, Event.DELIVERED): (Phase.DONE, ()),
    (Phase.ANSWERING, Event.DELIVERED): (Phase.DONE, ()),
    (Phase.WAIT_REQUEST, Event.ANSWER): (Phase.PASSING, (Action.PASS,)),
    (Phase.PASSING, Event.DELIVERED): (Phase.DONE, ()),
}


class PeerProtocolError(Exception):
    """Envoy sent what may not come now, or cannot be read: it is configured in another way than this service serves."""


class LocalProtocolError(Exception):
    """This program did what may not happen now: a fault of its own."""


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """The request's headers, by name in lower case; ``end_of_stream`` when no body follows."""

    headers: Mapping[str, str]
    end_of_stream: bool = False


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The request's body, whole."""

    body: bytes


class WholeRequest(NamedTuple):
    """The request's body, whole, with those of its headers that a decision reads."""

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class AnswerHeaders:
    """An answer's headers, by name in lower case.

    Attributes:
        headers: the headers, ``:status`` among them.
        end_of_stream: no body follows.
        withhold: usage was asked for in the client's name, who is not to see it.
    """

    headers: Mapping[str, str]
    end_of_stream: bool = False
    withhold: bool = False


@dataclass(frozen=True, slots=True)
class OtherMessage:
    """A message that has no place in the request phase as we serve it; ``name`` says which."""

    name: str


Message = RequestHeaders | RequestBody | WholeRequest | AnswerHeaders | OtherMessage


class Stream:
    """One stream: its phase, and what has been received.

    Attributes:
        phase: where it stands.
        headers: the request's headers; empty before they came.
        body: the request's body; empty before it came, and when there is none.
        answer: the answer's headers, where the stream is about an answer.
    """

    __slots__ = ("answer", "body", "headers", "phase")

    def __init__(self) -> None:
        self.phase = Phase.WAIT_REQUEST
        self.headers: Mapping[str, str] = {}
        self.body = b""
        self.answer = AnswerHeaders({})

    def receive(self, message: Message | None) -> tuple[Action, ...]:
        """Take in Envoy's next message, ``None`` when it has ended its side; return what to do.

        Raises:
            PeerProtocolError: it may not come now; nothing has changed.
        """
        match message:
            case RequestHeaders(headers, end_of_stream):
                actions = self.step(Event.HEADERS_ALONE if end_of_stream else Event.HEADERS)
                self.headers = headers
            case WholeRequest(headers, body):
                actions = self.step(Event.WHOLE)
                self.headers, self.body = headers, body
            case RequestBody(body):
                actions = self.step(Event.BODY)
                self.body = body
            case AnswerHeaders():
                actions = self.step(Event.ANSWER)
                self.answer = message
            case OtherMessage(name):
                actions = self.step(Event.OTHER, name)
            case None:
                actions = self.step(Event.ENDED)
        return actions

    def step(self, event: Event, name: str = "") -> tuple[Action, ...]:
        """Follow the table; return what to do. ``name`` describes the event in the error.

        Raises:
            PeerProtocolError: Envoy did what may not come now; nothing has changed.
            LocalProtocolError: the same, of an event of our own.
        """
        try:
            self.phase, actions = TABLE[self.phase, event]
        except KeyError:
            fault = PeerProtocolError if event in PEER_EVENTS else LocalProtocolError
            raise fault(f"{name or event.name} in phase {self.phase.name}") from None
        return actions
