"""What a gateway says on a stream of the endpoint picker protocol, without the wire's clothes."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.scheduling.subset import Subset


class BodyMode(enum.Enum):
    """How a gateway sends a body."""

    NONE = enum.auto()
    STREAMED = enum.auto()
    BUFFERED = enum.auto()
    BUFFERED_PARTIAL = enum.auto()
    FULL_DUPLEX_STREAMED = enum.auto()


@dataclass(frozen=True, slots=True)
class Modes:
    """How the gateway sends both bodies."""

    request: BodyMode = BodyMode.FULL_DUPLEX_STREAMED
    response: BodyMode = BodyMode.FULL_DUPLEX_STREAMED


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """The request's headers, by name in lower case.

    Attributes:
        headers: the values of one that is repeated are joined by commas.
        end_of_stream: no body follows.
        modes: as the stream's first message says them; ``None`` where it does not.
        subset: the endpoints that the gateway narrows the choice down to; ``None`` where it does not.
    """

    headers: Mapping[str, str]
    end_of_stream: bool = False
    modes: Modes | None = None
    subset: Subset | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the request's body."""

    body: bytes
    end_of_stream: bool


@dataclass(frozen=True, slots=True)
class Trailers:
    """The request's trailers; what they say is of no interest."""


@dataclass(frozen=True, slots=True)
class ResponseHeaders:
    """The response's headers.

    Attributes:
        headers: as in ``RequestHeaders``.
        end_of_stream: no body follows.
        served: ``ip:port`` of the endpoint that answered; empty where the gateway does not say.
        modes: as in ``RequestHeaders``.
    """

    headers: Mapping[str, str]
    end_of_stream: bool = False
    served: str = ""
    modes: Modes | None = None


@dataclass(frozen=True, slots=True)
class ResponsePiece:
    """A piece of the response's body."""

    body: bytes
    end_of_stream: bool


@dataclass(frozen=True, slots=True)
class ResponseTrailers:
    """The response's trailers."""


Message = RequestHeaders | Piece | Trailers | ResponseHeaders | ResponsePiece | ResponseTrailers
