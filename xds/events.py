"""What happens on the discovery streams, told to whoever logs and counts it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """A client said its first word.

    Attributes:
        stream: a number, unique in this process.
        node: the id that the client gives itself; empty when it gives none.
        incremental: it speaks the delta variant.
        group: the group of Envoys that it is in; empty where it is in none, or nothing is published yet.
    """

    stream: int
    node: str
    incremental: bool
    group: str = ""


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """A stream that was opened is over.

    Attributes:
        stream: its number.
        node: the client.
        error: what went wrong on this side; ``None`` when the client left or the server stops.
    """

    stream: int
    node: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A client was not let in: nobody takes it, or it is not who it says. Its stream was never opened.

    Attributes:
        node: the id that it gives itself.
        reason: why, as it was told.
    """

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Pushed:
    """A response went out.

    Attributes:
        stream: where.
        node: the client.
        type_url: the type.
        resources: how many resources it holds.
        removed: how many it takes away.
    """

    stream: int
    node: str
    type_url: str
    resources: int
    removed: int


@dataclass(frozen=True, slots=True)
class Acked:
    """The client applied a response of ``type_url``."""

    stream: int
    node: str
    type_url: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The client refused a response and goes on with what it had.

    Attributes:
        stream: where.
        node: the client.
        type_url: the type.
        versions: the refused versions by name. One alone is not sent again on this stream; of several, each is tried
            alone next.
        message: the client's reason, one line of bounded length.
    """

    stream: int
    node: str
    type_url: str
    versions: dict[str, str]
    message: str


DiscoveryEvent = StreamOpened | StreamClosed | Refused | Pushed | Acked | Rejected
Observe = Callable[[DiscoveryEvent], None]
