"""How an endpoint is, and whether it can be reached.

Silence is not death: only a connection that does not come about speaks against an endpoint, and only several in a row.
"""

import enum
from dataclasses import dataclass
from typing import NamedTuple

UNREACHABLE_AFTER = 3
"""Failed connections in a row before an endpoint is unreachable (memberlist and Envoy's own defaults: 2 to 5)."""


class Reachability(enum.Enum):
    """What the last attempts to connect say."""

    UNKNOWN = "unknown"
    UNREACHED = "unreached"
    """It was never reached, and the last attempt failed: nothing speaks for it, and little against it."""
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"


NOT_THERE = frozenset({Reachability.UNREACHABLE, Reachability.UNREACHED})
"""Who did not answer when last tried, several times or ever."""


class ConnectionRecord:
    """Counts failed connections in a row."""

    __slots__ = ("failures", "state")

    def __init__(self) -> None:
        self.failures = 0
        self.state = Reachability.UNKNOWN

    def succeeded(self) -> bool:
        """Record a connection; return whether the state changed."""
        self.failures = 0
        return self._become(Reachability.REACHABLE)

    def failed(self) -> bool:
        """Record a failed connection; return whether the state changed."""
        self.failures += 1
        if self.failures >= UNREACHABLE_AFTER:
            return self._become(Reachability.UNREACHABLE)
        return self.state is Reachability.UNKNOWN and self._become(Reachability.UNREACHED)

    def _become(self, state: Reachability) -> bool:
        changed, self.state = self.state is not state, state
        return changed


class HealthStatus(enum.Enum):
    """How an endpoint is, all that is known of it taken together."""

    HEALTHY = "healthy"
    JOINING = "joining"
    """It is new, and gets nothing until it has shown that it is ready."""
    WARMING = "warming"
    """It is new, or was away, and gets its share little by little."""
    DEGRADED = "degraded"
    """It serves, and gets less."""
    DRAINING = "draining"
    """It gets nothing new, and finishes what it has."""
    EJECTED = "ejected"
    """It gets nothing; what runs there may finish."""


OUT = frozenset({HealthStatus.JOINING, HealthStatus.DRAINING, HealthStatus.EJECTED})
"""Who gets nothing new: never named by a decision, and not in Envoy's table."""


class Health(NamedTuple):
    """How an endpoint is.

    Attributes:
        status: in a word.
        reasons: why; nothing for a healthy one.
        since: since when, in seconds.
        share: of what it would get among the others of its pool if it were healthy, 0 to 1.
    """

    status: HealthStatus = HealthStatus.HEALTHY
    reasons: tuple[str, ...] = ()
    since: float = 0.0
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class HealthRules:
    """Where the lines are drawn, for one pool.

    Attributes:
        hold_seconds: how long an endpoint is ejected at least, the first time. It doubles with each further time.
        max_hold_seconds: the most that it grows to.
        calm_seconds: how long nothing must have spoken against an endpoint until it is let off.
        forgive_seconds: for each such time without an ejection one of the earlier ones is forgotten.
        warm_up_seconds: how long it takes until an endpoint that joined or came back has its whole share.
        least_share: the share that it begins with, and that one has which would be ejected if it could be.
        degraded_share: the share of a degraded endpoint.
        max_ejected: the most of a pool's endpoints that are ejected at once, 0 to 1.
        max_ejected_on_hearsay: the most that are ejected at once by the word of GPU agents alone, but always one.
        panic: when more than this share of a pool's endpoints looks bad, nobody is ejected.
        ready_by: the sign by which an endpoint that joins others shows that it is ready: ``any``, ``metrics``, or a
            check's name; empty: it needs none.
        ready_seconds: how long that is waited for.
    """

    hold_seconds: float = 5.0
    max_hold_seconds: float = 300.0
    calm_seconds: float = 3.0
    forgive_seconds: float = 60.0
    warm_up_seconds: float = 30.0
    least_share: float = 0.1
    degraded_share: float = 0.5
    max_ejected: float = 0.5
    max_ejected_on_hearsay: float = 0.3
    panic: float = 0.5
    ready_by: str = ""
    ready_seconds: float = 30.0


RULES = HealthRules()
