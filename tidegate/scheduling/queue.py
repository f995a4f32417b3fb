"""Requests that wait for room in a pool: the important first, tenants fairly by tokens, the urgent before the patient.

Three orders, one inside the other:

- *Bands.* A higher priority goes first. Waiting raises it: after ``ageing_seconds`` a request stands with the band
  above its own, so that a steady stream of the important delays the rest and never starves it. Bands below zero are
  batch work, which takes what the others leave: no wait raises it above zero.
- *Tenants.* Inside a band, tenants share by tokens and weight: start-time fair queueing (Goyal, Vin, Cheng 1996), which
  serves the tenant with the smallest virtual time and advances it by tokens / weight. It keeps the bound of deficit
  round robin, that two tenants who both wait differ by at most one request each, and needs no quantum, which prompts of
  10 to 1,000,000 tokens would not have in common. A tenant that was away has no credit from then.
- *Deadlines.* Inside a tenant, the earliest deadline first, then the first to arrive.

Bounds hold at every moment. Where there is no room for a request, those of a lower priority make it, the lowest and
latest first; where those are too few, the request itself is refused.
"""

import enum
import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from tidegate.scheduling.bands import Band, Sum, Tenant, Waiting

_SLACK = 32
"""How many requests that left may stay in a heap, beyond as many as wait there."""


UNBOUNDED = 2**62


class Full(enum.Enum):
    """Which bound leaves no room."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    BYTES = "bytes"
    TENANT_REQUESTS = "tenant_requests"
    TENANT_TOKENS = "tenant_tokens"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may wait, all in all and of one tenant.

    Attributes:
        requests: requests.
        tokens: tokens of all requests together.
        bytes: bytes of their bodies together.
        tenant_requests: requests of one tenant.
        tenant_tokens: tokens of one tenant.
    """

    requests: int = 5_000
    tokens: int = 50_000_000
    bytes: int = 1_000_000_000
    tenant_requests: int = UNBOUNDED
    tenant_tokens: int = UNBOUNDED


@dataclass(frozen=True, slots=True)
class Offer:
    """What became of a request that was offered.

    Attributes:
        refused: the bound that left no room; ``None`` if the request waits.
        shed: requests of a lower priority that made room for it and wait no longer.
    """

    refused: Full | None = None
    shed: tuple[Waiting, ...] = ()


class Ahead(NamedTuple):
    """What goes before a request that has yet to come.

    Attributes:
        requests: how many that wait.
        tokens: their tokens.
        rivals: the other tenants of its band of whom something waits, and how many tokens each may have pass besides
            those, if it asks for them in time.
        waits: tenants of whom nothing waits may have something pass as well, when they come.
    """

    requests: int
    tokens: int
    rivals: Mapping[str, float] = MappingProxyType({})
    waits: bool = False


class Queue:
    """The requests that wait for one pool. Time is the caller's; it never goes back."""

    def __init__(
        self, bounds: Bounds, ageing_seconds: float, weights: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        """Begin empty.

        Args:
            bounds: how much may wait.
            ageing_seconds: after how long a wait a request counts as of the next higher priority.
            weights: the tenants' shares; 1 for those not named.
        """
        self.configure(bounds, ageing_seconds, weights)
        self._bands: dict[int, Band] = {}
        self._live: dict[str, tuple[int, Waiting]] = {}
        self._total = Sum()
        self._tenants: dict[str, Sum] = {}
        self._deadlines: list[tuple[float, int, str]] = []
        self._numbers = 0

    def configure(self, bounds: Bounds, ageing_seconds: float, weights: Mapping[str, float]) -> None:
        """Take over settings as in the constructor; what waits stays, also beyond a bound that is now lower."""
        if ageing_seconds <= 0 or any(weight <= 0 for weight in weights.values()):
            raise ValueError("ageing and weights must be above zero")
        self._bounds = bounds
        self._ageing = ageing_seconds
        self._weights = dict(weights)

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._live

    def __iter__(self) -> Iterator[Waiting]:
        return (request for _, request in self._live.values())

    @property
    def tokens(self) -> int:
        """Tokens of all that waits."""
        return self._total.tokens

    @property
    def bytes(self) -> int:
        """Bytes of all that waits."""
        return self._total.bytes

    def offer(self, request: Waiting) -> Offer:
        """Have ``request`` wait, if there is room or room can be made.

        Raises:
            ValueError: one of the same id waits already, or it has no tokens.
        """
        if request.id in self._live or request.tokens < 1:
            raise ValueError(f"request {request.id} waits already, or has no tokens")
        own = self._tenants.get(request.tenant) or Sum()
        if own.requests + 1 > self._bounds.tenant_requests:
            return Offer(Full.TENANT_REQUESTS)
        if own.tokens + request.tokens > self._bounds.tenant_tokens:
            return Offer(Full.TENANT_TOKENS)
        shed = self._room_for(request)
        if isinstance(shed, Full):
            return Offer(shed)
        for victim in shed:
            self.leave(victim.id)
        self._enter(request)
        return Offer(shed=shed)

    def leave(self, request_id: str) -> Waiting | None:
        """Take a request out, whose client left or whose time is up; ``None`` if it does not wait."""
        entry = self._live.pop(request_id, None)
        if entry is None:
            return None
        self._gone(*entry)
        return entry[1]

    @property
    def first_deadline(self) -> float:
        """When the first of those that wait is no longer waited for; infinite when nothing waits."""
        deadlines = self._deadlines
        while deadlines and not self._waits(deadlines[0][2], deadlines[0][1]):
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else math.inf

    def expire(self, now: float) -> list[Waiting]:
        """Take out and return the requests whose deadline has come by ``now``, the earliest first."""
        late: list[Waiting] = []
        while self.first_deadline <= now:
            entry = self._live.pop(self._deadlines[0][2])
            self._gone(*entry)
            late.append(entry[1])
        return late

    def next(self, now: float) -> Waiting | None:
        """Return the request that is to go first at ``now``, which goes on waiting; ``None`` if nothing waits."""
        if not self._live:
            return None
        return self._tenant_of(self._band_at(now))[1].heap[0][3]

    def take(self, now: float) -> Waiting | None:
        """Take out and return the request that goes first at ``now``, and charge its tenant for it."""
        if not self._live:
            return None
        band = self._band_at(now)
        name, tenant = self._tenant_of(band)
        request = tenant.heap[0][3]
        band.virtual = tenant.virtual
        tenant.virtual += request.tokens / self._weights.get(name, 1.0)
        self._gone(*self._live.pop(request.id))
        return request

    def rank(self, priority: int, now: float) -> float:
        """Return with which priority those of ``priority`` stand at ``now`` (seconds), who have waited and aged."""
        band = self._bands.get(priority)
        rank = priority + (0.0 if band is None else self._aged(band, now))
        # Not even the longest wait makes batch work anything else.
        return rank if priority >= 0 else min(rank, math.nextafter(0.0, -1.0))

    def ahead(self, tenant: str, priority: int) -> "Ahead":
        """Return what probably goes before a new request of ``tenant`` and ``priority``.

        Those of higher bands do, and of its own band, those of its tenant and of each other tenant as much as fair
        shares let pass. That bands grow older is left out, and that it may be more urgent than others of its tenant:
        this is asked for every request, so it looks at tenants and not at all that waits.
        """
        above = [band for number, band in self._bands.items() if number > priority]
        requests, tokens = sum(len(band.waiting) for band in above), sum(band.tokens for band in above)
        if (band := self._bands.get(priority)) is None:
            return Ahead(requests, tokens)
        own = band.tenants.get(tenant)
        begins = max(band.virtual, band.ahead.get(tenant, 0.0)) if own is None else own.virtual
        if own is not None:
            requests, tokens = requests + own.waiting, tokens + own.tokens
            begins += own.tokens / self._weights.get(tenant, 1.0)
        rivals: dict[str, float] = {}
        for name, other in band.tenants.items():
            if name != tenant:
                # Until its virtual time is beyond the one at which ours begins; one request goes over.
                pass_by = max(0.0, begins - other.virtual) * self._weights.get(name, 1.0)
                share = min(1.0, pass_by / other.tokens + 1 / other.waiting)
                requests, tokens = requests + round(share * other.waiting), tokens + round(share * other.tokens)
                rivals[name] = max(0.0, pass_by - other.tokens)
        return Ahead(requests, tokens, rivals, waits=begins > band.virtual)

    # -- order

    def _band_at(self, now: float) -> Band:
        """Return the band whose oldest request stands highest, the higher band where two stand alike."""
        return max(self._bands.items(), key=lambda item: (item[0] >= 0, item[0] + self._aged(item[1], now), item[0]))[1]

    def _aged(self, band: Band, now: float) -> float:
        return max(0.0, now - band.arrivals[0][0]) / self._ageing

    def _tenant_of(self, band: Band) -> tuple[str, Tenant]:
        return min(band.tenants.items(), key=lambda item: (item[1].virtual, item[1].heap[0][:3]))

    # -- room

    def _room_for(self, request: Waiting) -> tuple[Waiting, ...] | Full:
        """Return whom to shed for ``request``, nobody if there is room, or the bound that stays broken whoever goes."""
        over = Sum(self._total.requests, self._total.tokens, self._total.bytes)
        over.add(request)
        if (full := self._over(over)) is None:
            return ()
        shed: list[Waiting] = []
        # The lowest first; among equals the one that came last, which has waited least.
        for priority in sorted(number for number in self._bands if number < request.priority):
            for victim in reversed(self._bands[priority].waiting.values()):
                shed.append(victim)
                over.add(victim, -1)
                if self._over(over) is None:
                    return tuple(shed)
        return full

    def _over(self, total: Sum) -> Full | None:
        if total.requests > self._bounds.requests:
            return Full.REQUESTS
        if total.tokens > self._bounds.tokens:
            return Full.TOKENS
        return Full.BYTES if total.bytes > self._bounds.bytes else None

    # -- books

    def _enter(self, request: Waiting) -> None:
        self._numbers += 1
        number = self._numbers
        self._live[request.id] = (number, request)
        self._total.add(request)
        self._tenants.setdefault(request.tenant, Sum()).add(request)
        band = self._bands.setdefault(request.priority, Band())
        band.waiting[number] = request
        band.tokens += request.tokens
        heapq.heappush(band.arrivals, (request.arrived, number, request.id))
        heapq.heappush(self._deadlines, (request.deadline, number, request.id))
        tenant = band.tenant(request.tenant)
        tenant.waiting += 1
        tenant.tokens += request.tokens
        heapq.heappush(tenant.heap, (request.deadline, request.arrived, number, request))

    def _gone(self, number: int, request: Waiting) -> None:
        """Take a request that is no longer live out of the books."""
        self._total.add(request, -1)
        own = self._tenants[request.tenant]
        own.add(request, -1)
        if own.requests == 0:
            del self._tenants[request.tenant]
        band = self._bands[request.priority]
        tenant = band.tenants[request.tenant]
        del band.waiting[number]
        band.tokens -= request.tokens
        tenant.waiting -= 1
        tenant.tokens -= request.tokens
        if len(self._deadlines) > 2 * len(self._live) + _SLACK:
            self._deadlines = [entry for entry in self._deadlines if self._waits(entry[2], entry[1])]
            heapq.heapify(self._deadlines)
        if tenant.waiting == 0:
            del band.tenants[request.tenant]
            band.remember(request.tenant, tenant.virtual)
        elif len(tenant.heap) > 2 * tenant.waiting + _SLACK:
            tenant.heap = [entry for entry in tenant.heap if self._waits(entry[3].id, entry[2])]
            heapq.heapify(tenant.heap)
        if not band.waiting:
            del self._bands[request.priority]
            return
        if len(band.arrivals) > 2 * len(band.waiting) + _SLACK:
            band.arrivals = [entry for entry in band.arrivals if self._waits(entry[2], entry[1])]
            heapq.heapify(band.arrivals)
        while not self._waits(band.arrivals[0][2], band.arrivals[0][1]):
            heapq.heappop(band.arrivals)
        while tenant.waiting and not self._waits(tenant.heap[0][3].id, tenant.heap[0][2]):
            heapq.heappop(tenant.heap)

    def _waits(self, request_id: str, number: int) -> bool:
        entry = self._live.get(request_id)
        return entry is not None and entry[0] == number
