"""Whether an endpoint can be reached, and which ones are left out because they cannot.

Silence is not death: only a connection that does not come about speaks against an endpoint, and only several in a row.
"""

import enum
from collections.abc import Iterable

UNREACHABLE_AFTER = 3
"""Failed connections in a row before an endpoint is unreachable (memberlist and Envoy's own defaults: 2 to 5)."""


class Reachability(enum.Enum):
    """What the last attempts to connect say."""

    UNKNOWN = "unknown"
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"


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
        return self.failures >= UNREACHABLE_AFTER and self._become(Reachability.UNREACHABLE)

    def _become(self, state: Reachability) -> bool:
        changed, self.state = self.state is not state, state
        return changed


def ejected(states: Iterable[tuple[str, Reachability]]) -> frozenset[str]:
    """Return the addresses of a pool that Envoy should no longer know.

    When more than half of a pool looks unreachable at once, the fault is probably on our side (a broken scraper, a lost
    network): nobody is ejected then. Envoy's healthy panic threshold is the same half.
    """
    states = list(states)
    unreachable = frozenset(address for address, state in states if state is Reachability.UNREACHABLE)
    return unreachable if 2 * len(unreachable) <= len(states) else frozenset()
