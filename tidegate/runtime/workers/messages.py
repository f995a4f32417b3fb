"""What the main process and a worker say to each other, in MessagePack.

Times are seconds on the monotonic clock, which all processes of a machine share.
"""

from typing import Final

import msgspec

from tidegate.fleet.events import (
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    EvidenceReported,
    FleetEvent,
    GpuMemoryReported,
    LoadReported,
    OthersReported,
    PoolsDeclared,
    RequestEnded,
    RequestQuarantined,
    RequestReserved,
    ScrapeFailed,
    ScrapeStarted,
    TimePassed,
)
from tidegate.fleet.image import FleetImage
from tidegate.runtime.workers.framing import frame
from tidegate.scheduling.allowance import Answer, Ask
from tidegate.tokens.correction import Learned


class Message(msgspec.Struct, frozen=True, array_like=True, tag_field="type"):
    """One message; a list on the wire, which begins with the name of its class."""


# -- from the main process to a worker


class Welcome(Message, frozen=True, tag=True):
    """The first one: all that a worker begins with.

    Attributes:
        port: where it is to serve.
        config: the configuration by which it decides, as JSON.
        started_at: since when models are said to be served, in Unix seconds.
        fleet: the fleet at this moment; what happens afterwards comes as facts.
        corrections: what was learned about token counts.
    """

    port: int
    config: bytes
    started_at: int
    fleet: FleetImage
    corrections: tuple[Learned, ...]


class Prepare(Message, frozen=True, tag=True):
    """Make ready to decide by ``config`` (JSON), and answer ``Prepared``."""

    number: int
    config: bytes


class Decide(Message, frozen=True, tag=True):
    """Decide by the configuration that was prepared as ``number``, and answer ``Deciding``."""

    number: int


class Taught(Message, frozen=True, tag=True):
    """An engine counted ``reported`` prompt tokens where we had ``counted``."""

    pool: str
    model: str
    counted: int
    reported: int


class Stop(Message, frozen=True, tag=True):
    """Finish what is open, and end: nobody will ask any more."""


class Declared(Message, frozen=True, tag=True):
    """A fact, at the time ``now``; so are the ones that follow."""

    now: float
    event: PoolsDeclared


class Scraping(Message, frozen=True, tag=True):
    """See ``Declared``."""

    now: float
    event: ScrapeStarted


class Reported(Message, frozen=True, tag=True):
    """See ``Declared``."""

    now: float
    event: LoadReported


class Unanswered(Message, frozen=True, tag=True):
    """See ``Declared``."""

    now: float
    event: ScrapeFailed


class ReservedElsewhere(Message, frozen=True, tag=True):
    """See ``Declared``."""

    now: float
    event: RequestReserved


class Ended(Message, frozen=True, tag=True):
    """See ``Declared``."""

    now: float
    event: RequestEnded


class Stored(Message, frozen=True, tag=True):
    """See ``Declared``."""

    now: float
    event: BlocksStored


class Removed(Message, frozen=True, tag=True):
    """See ``Declared``."""

    now: float
    event: BlocksRemoved


class Cleared(Message, frozen=True, tag=True):
    """See ``Declared``."""

    now: float
    event: BlocksCleared


class Judged(Message, frozen=True, tag=True):
    """See ``Declared``."""

    now: float
    event: EvidenceReported


class Answered(Message, frozen=True, tag=True):
    """What a request asked of the limits is taken, unless one is in the way.

    ``None``: that could not be found out, and nothing is taken.
    """

    id: str
    answer: Answer | None


class HasMemory(Message, frozen=True, tag=True):
    """See ``Declared``."""

    now: float
    event: GpuMemoryReported


class Elsewhere(Message, frozen=True, tag=True):
    """See ``Declared``."""

    now: float
    event: OthersReported


class Passed(Message, frozen=True, tag=True):
    """See ``Declared``."""

    now: float
    event: TimePassed


class Quarantined(Message, frozen=True, tag=True):
    """See ``Declared``."""

    now: float
    event: RequestQuarantined


Fact = (
    Declared
    | Scraping
    | Reported
    | Unanswered
    | ReservedElsewhere
    | Ended
    | Stored
    | Removed
    | Cleared
    | Judged
    | HasMemory
    | Elsewhere
    | Passed
    | Quarantined
)
ToWorker = Welcome | Prepare | Decide | Taught | Stop | Answered | Fact

_FACTS: Final = {
    PoolsDeclared: Declared,
    ScrapeStarted: Scraping,
    LoadReported: Reported,
    ScrapeFailed: Unanswered,
    RequestReserved: ReservedElsewhere,
    RequestEnded: Ended,
    BlocksStored: Stored,
    BlocksRemoved: Removed,
    BlocksCleared: Cleared,
    EvidenceReported: Judged,
    GpuMemoryReported: HasMemory,
    OthersReported: Elsewhere,
    TimePassed: Passed,
    RequestQuarantined: Quarantined,
}


def fact(event: FleetEvent, now: float) -> Fact | None:
    """Return the message about ``event``, which happened at ``now``.

    ``None`` where no replica needs it: leases, which ``RequestProgressed`` renews, run out in the main process alone.
    """
    kind = _FACTS.get(type(event))
    return None if kind is None else kind(now, event)


# -- from a worker to the main process


class Prepared(Message, frozen=True, tag=True):
    """The configuration ``number`` can be decided by."""

    number: int


class Deciding(Message, frozen=True, tag=True):
    """Every decision from now on is by the configuration ``number``."""

    number: int


class Ready(Message, frozen=True, tag=True):
    """It listens."""


class Leaving(Message, frozen=True, tag=True):
    """It was asked to end, and answers until Envoy has noticed."""


class Reserved(Message, frozen=True, tag=True):
    """A decision sent a request to an endpoint."""

    event: RequestReserved


class Delivered(Message, frozen=True, tag=True):
    """That decision reached Envoy: the reservation lives on without the worker."""

    id: str


class Abandoned(Message, frozen=True, tag=True):
    """That decision did not reach Envoy: the reservation is released."""

    id: str


class Asked(Message, frozen=True, tag=True):
    """A request asks for what it will probably take of the limits, and waits for ``Answered``."""

    ask: Ask


class Withdrawn(Message, frozen=True, tag=True):
    """It goes nowhere: what it took is given back, and so is what it would be answered with."""

    id: str


class Counted(Message, frozen=True, tag=True):
    """What was counted since the last time; empty, it is a sign of life.

    Attributes:
        calls: the methods of ``Figures`` that were called: the name, the arguments and how often.
    """

    calls: tuple[tuple[str, tuple[str | float, ...], int], ...]


FromWorker = Prepared | Deciding | Ready | Leaving | Reserved | Delivered | Abandoned | Asked | Withdrawn | Counted

_encoder: Final = msgspec.msgpack.Encoder()
to_worker: Final = msgspec.msgpack.Decoder(ToWorker)
from_worker: Final = msgspec.msgpack.Decoder(FromWorker)


def encode(message: Message) -> bytes:
    """Return ``message`` as it goes over the channel."""
    return frame(_encoder.encode(message))
