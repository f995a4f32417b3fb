"""What waits, request by request, tenant by tenant and band by band: the books of a queue."""

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request that waits.

    Attributes:
        id: its id, unique among those that wait.
        tenant: who asks.
        priority: its band; higher goes first.
        tokens: what it will take of an engine: prompt and expected output; 1 or more.
        bytes: what its body takes of memory while it waits.
        arrived: when it came, in seconds on the caller's clock.
        deadline: when it will no longer be waited for, likewise.
    """

    id: str
    tenant: str
    priority: int
    tokens: int
    bytes: int
    arrived: float
    deadline: float


REMEMBERED = 1_024
"""Tenants of whom nothing waits whose share is remembered, in each band."""


@dataclass(slots=True)
class Sum:
    """Of a number of requests: how many, their tokens and their bytes."""

    requests: int = 0
    tokens: int = 0
    bytes: int = 0

    def add(self, request: Waiting, sign: int = 1) -> None:
        """Count ``request``; with a ``sign`` of -1, no longer."""
        self.requests += sign
        self.tokens += sign * request.tokens
        self.bytes += sign * request.bytes


@dataclass(slots=True)
class Tenant:
    """What waits of one tenant in one band.

    Attributes:
        virtual: its virtual time.
        waiting: how many requests wait.
        tokens: their tokens.
        heap: those by deadline, and some that left.
    """

    virtual: float
    waiting: int = 0
    tokens: int = 0
    heap: list[tuple[float, float, int, Waiting]] = field(default_factory=list)


@dataclass(slots=True)
class Band:
    """What waits of one priority.

    Attributes:
        virtual: the virtual time of the tenant served last: where one that comes back begins.
        waiting: what waits, in the order in which it came, by number.
        tokens: its tokens.
        tenants: those of whom something waits, by name.
        ahead: the virtual times of those of whom nothing waits, where they are ahead of the band's: what they were
            served counts when they come back, or asking for one thing at a time would be a way to get more.
        arrivals: what waits by its arrival, and some that left.
    """

    virtual: float = 0.0
    waiting: OrderedDict[int, Waiting] = field(default_factory=OrderedDict)
    tokens: int = 0
    tenants: dict[str, Tenant] = field(default_factory=dict)
    ahead: dict[str, float] = field(default_factory=dict)
    arrivals: list[tuple[float, int, str]] = field(default_factory=list)

    def tenant(self, name: str) -> Tenant:
        """Return the tenant ``name``, of whom something is going to wait."""
        if (known := self.tenants.get(name)) is None:
            known = self.tenants[name] = Tenant(max(self.virtual, self.ahead.pop(name, 0.0)))
        return known

    def remember(self, name: str, virtual: float) -> None:
        """Keep the virtual time of a tenant of whom nothing waits any more, if it says anything; a bounded number."""
        if virtual <= self.virtual:
            return
        self.ahead[name] = virtual
        if len(self.ahead) > REMEMBERED:
            kept = sorted(self.ahead.items(), key=lambda item: -item[1])[: REMEMBERED // 2]
            self.ahead = {tenant: time for tenant, time in kept if time > self.virtual}
