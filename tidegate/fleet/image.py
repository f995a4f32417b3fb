"""A fleet as plain data: all that another process needs to hold the same one."""

import math
from dataclasses import dataclass

from tidegate.fleet.breaker import Breaker
from tidegate.fleet.condition import ConditionImage
from tidegate.fleet.endpoint import PoolSpec
from tidegate.fleet.health import Reachability
from tidegate.fleet.ledger import Reservation
from tidegate.fleet.load import EngineReport
from tidegate.fleet.others import Heard
from tidegate.fleet.output_lengths import LengthsImage
from tidegate.fleet.pool_health import AlarmImage
from tidegate.fleet.rates import ScaleImage
from tidegate.fleet.vram import Vram


@dataclass(frozen=True, slots=True)
class MemberImage:
    """One endpoint, as in ``member.Member``; ``failures`` are failed connections in a row.

    ``told`` are the blocks that its engine says it caches, those that leave first going first: no engine says anything
    twice. What is guessed of caches is learned anew.
    """

    address: str
    failures: int
    reachability: Reachability
    report: EngineReport
    reported_at: float | None
    own_at_scrape: int
    foreign: float | None
    rates: tuple[ScaleImage, ScaleImage]
    told: tuple[int, ...]
    vram: Vram
    breaker: Breaker | None
    condition: ConditionImage
    others: Heard | None = None
    sent: tuple[float, int] = (-math.inf, 0)
    trusted_from: float = -math.inf


@dataclass(frozen=True, slots=True)
class PoolImage:
    """One pool, and what it has learned: a request's mean in tokens, and the lengths of answers; and its alarm.

    ``sent`` is how many requests its endpoints were sent.
    """

    spec: PoolSpec
    request_tokens: float
    outputs: tuple[tuple[str | None, LengthsImage], ...]
    alarm: AlarmImage
    sent: int = 0


@dataclass(frozen=True, slots=True)
class FleetImage:
    """The whole fleet.

    Attributes:
        pools: in the order of their declaration.
        members: the endpoints.
        reservations: the live ones, those whose lease runs out first going first.
        quarantined: the fingerprints of requests that nobody is given, and until when.
    """

    pools: tuple[PoolImage, ...]
    members: tuple[MemberImage, ...]
    reservations: tuple[Reservation, ...]
    quarantined: tuple[tuple[int, float], ...] = ()
