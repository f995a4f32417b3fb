"""Everything that changes what we know of the fleet, and what follows from it.

Events are applied by one writer, in the order of their arrival (``state.Fleet.apply``). Times are seconds on the
caller's monotonic clock.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tidegate.fleet.endpoint import PoolSpec
from tidegate.fleet.evidence import Ending, Evidence
from tidegate.fleet.health import Health, Reachability
from tidegate.fleet.ledger import Reservation
from tidegate.fleet.load import EngineReport
from tidegate.fleet.others import Others
from tidegate.fleet.pool_health import Alarm
from tidegate.fleet.vram import GpuMemory


@dataclass(frozen=True, slots=True)
class PoolsDeclared:
    """The complete set of pools: what is not in it is gone."""

    pools: tuple[PoolSpec, ...]


@dataclass(frozen=True, slots=True)
class ScrapeStarted:
    """A scrape of ``address`` begins: what is in flight there now is what its report will count."""

    address: str


@dataclass(frozen=True, slots=True)
class LoadReported:
    """The engine at ``address`` answered a scrape. An empty report says only that it is there."""

    address: str
    report: EngineReport


@dataclass(frozen=True, slots=True)
class ScrapeFailed:
    """A scrape of ``address`` brought no report.

    Attributes:
        address: the endpoint.
        unreachable: no connection came about. Anything less (a timeout while reading, an odd answer) leaves the
            endpoint's load unknown and says nothing against its life.
        reason: for logs; one line.
    """

    address: str
    unreachable: bool
    reason: str


class RequestReserved(NamedTuple):
    """A decision sent a request to an endpoint.

    Attributes:
        reservation: what counts as in flight there.
        prefix: hashes of the blocks that its prompt begins with, each standing for all before it as well.
        block_tokens: tokens of one block.
    """

    reservation: Reservation
    prefix: tuple[int, ...] = ()
    block_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RequestProgressed:
    """The request is known to be still running."""

    reservation_id: str


class RequestEnded(NamedTuple):
    """The request is over, whatever the outcome.

    Attributes:
        reservation_id: its reservation.
        output_tokens: tokens it generated, where the engine said so.
        ttft: seconds from its delivery to the engine to the first token; ``None`` where that was not seen.
        duration: seconds from its delivery to the last byte, likewise.
        cached_tokens: those of its prompt that needed no prefill, where the engine said so.
        failed: the endpoint of the reservation failed it, even if another one served it then.
        ending: how it ended at the endpoint of the reservation; ``None`` where that is not known.
        elsewhere: how further attempts ended, at the endpoints of these addresses.
    """

    reservation_id: str
    output_tokens: int | None = None
    ttft: float | None = None
    duration: float | None = None
    cached_tokens: int | None = None
    failed: bool = False
    ending: Ending | None = None
    elsewhere: tuple[tuple[str, Ending], ...] = ()


@dataclass(frozen=True, slots=True)
class EvidenceReported:
    """A source said what it thinks of the endpoint at ``address``."""

    address: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class GpuMemoryReported:
    """An agent said how much VRAM there is where the endpoint at ``address`` runs."""

    address: str
    memory: GpuMemory


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing happened but that: what holds for a time may be over. To be applied about once a second."""


@dataclass(frozen=True, slots=True)
class RequestQuarantined:
    """Requests of this fingerprint kill engines, and are given to nobody for ``seconds``."""

    fingerprint: int
    seconds: float


@dataclass(frozen=True, slots=True)
class OthersReported:
    """The other replicas said what they have in flight: all of it, at the moment.

    Attributes:
        loads: by address; where nothing is said they have nothing, as far as is known.
        seconds: how long that is believed.
    """

    loads: tuple[tuple[str, Others], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """The engine at ``address`` says that it keeps these blocks of prompts, of ``block_tokens`` tokens each.

    ``hashes`` are a chain, the blocks in their order.
    """

    address: str
    hashes: tuple[int, ...]
    block_tokens: int


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """The engine at ``address`` says that it no longer has these blocks."""

    address: str
    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlocksCleared:
    """The engine at ``address`` no longer has any block, or what it has can no longer be known."""

    address: str


FleetEvent = (
    PoolsDeclared
    | ScrapeStarted
    | LoadReported
    | ScrapeFailed
    | RequestReserved
    | RequestProgressed
    | RequestEnded
    | BlocksStored
    | BlocksRemoved
    | BlocksCleared
    | EvidenceReported
    | OthersReported
    | RequestQuarantined
    | GpuMemoryReported
    | TimePassed
)


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """Endpoints or pools were added, changed or removed."""

    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReachabilityChanged:
    """An endpoint's reachability is another than before."""

    address: str
    reachability: Reachability
    reason: str


@dataclass(frozen=True, slots=True)
class ReservationReleased:
    """A reservation was released: by its request's end, or ``expired`` because no end was ever reported."""

    reservation: Reservation
    expired: bool = False


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """The status of an endpoint's health is another than before.

    Attributes:
        pool: its pool.
        address: the endpoint.
        before: how it was.
        health: how it is.
        detail: one line for people; may be empty.
    """

    pool: str
    address: str
    before: Health
    health: Health
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SharesChanged:
    """The endpoints of ``pool`` get other shares than before, by their health."""

    pool: str


@dataclass(frozen=True, slots=True)
class PoolAlarmed:
    """So many endpoints of ``pool`` look bad that something else is the matter; or that is over."""

    pool: str
    before: Alarm
    alarm: Alarm


FleetChange = (
    MembershipChanged | ReachabilityChanged | ReservationReleased | HealthChanged | SharesChanged | PoolAlarmed
)
