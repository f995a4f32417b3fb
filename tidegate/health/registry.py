"""The last report of each node, and how old it is. Pure: the time is an argument.

Ages are reckoned from when a report came in, by our own clock, so a node's clock can be anything. A report that was
already taken, or one from a life of the agent that is over, changes nothing. Silence makes a node unknown, never dead.
"""

import enum
from collections.abc import Iterator
from typing import NamedTuple

from tidegate.health.reported import Report

MAX_NODES = 10_000

MISSED = 3
"""A node is silent after so many intervals without a report (heartbeats of others: 2 to 3)."""

MIN_SILENT_SECONDS = 5.0
"""Before that nobody is silent, however often he meant to report."""

FORGET_SECONDS = 3600.0
"""A silent node gives its place to a new one after so long."""

MAX_LIVES = 8
"""Former lives of an agent that are remembered."""


class Intake(enum.Enum):
    """What became of a report."""

    TAKEN = "taken"
    STALE = "stale"
    """It is not newer than what was taken before."""
    FULL = "full"
    """It is of a new node, and there is no place for one."""


class Heard(NamedTuple):
    """The last report of a node, and when it came in (seconds, monotonic)."""

    report: Report
    at: float

    def age(self, now: float) -> float:
        """Return how long ago it came in, in seconds."""
        return max(0.0, now - self.at)

    def silent(self, now: float) -> bool:
        """Return whether the node has been silent for so long that nothing is known of it any more."""
        return self.age(now) > patience(self.report)


def patience(report: Report) -> float:
    """Return for how many seconds ``report`` says how things are, unless another one comes."""
    return max(MIN_SILENT_SECONDS, MISSED * report.interval_seconds)


class Registry:
    """What the nodes said last."""

    def __init__(self, max_nodes: int = MAX_NODES) -> None:
        """Keep at most ``max_nodes``."""
        self._max_nodes = max_nodes
        # Oldest first: a node moves to the end with each report.
        self._heard: dict[str, Heard] = {}
        # The last sequence of each life of each node's agent, the present one last.
        self._lives: dict[str, dict[str, int]] = {}

    def take(self, report: Report, now: float) -> Intake:
        """Keep ``report`` if it is news."""
        heard = self._heard.get(report.node)
        if heard is None and not self._has_place(now):
            return Intake.FULL
        lives = self._lives.setdefault(report.node, {})
        if report.sequence <= lives.get(report.boot_id, 0):
            return Intake.STALE
        if report.boot_id in lives and heard is not None and heard.report.boot_id != report.boot_id:
            # Two agents for one node, or an echo: the older life counts again only once the newer one is silent.
            if not heard.silent(now):
                return Intake.STALE
            del lives[report.boot_id]
        lives[report.boot_id] = report.sequence
        while len(lives) > MAX_LIVES:
            del lives[next(iter(lives))]
        self._heard.pop(report.node, None)
        self._heard[report.node] = Heard(report, now)
        return Intake.TAKEN

    def _has_place(self, now: float) -> bool:
        if len(self._heard) < self._max_nodes:
            return True
        oldest, heard = next(iter(self._heard.items()))
        if heard.age(now) < FORGET_SECONDS:
            return False
        self.forget(oldest)
        return True

    def forget(self, node: str) -> None:
        """Know nothing of ``node`` any more."""
        self._heard.pop(node, None)
        self._lives.pop(node, None)

    def last(self, node: str) -> Heard | None:
        """Return the last report of ``node``; ``None`` if there was none."""
        return self._heard.get(node)

    def current(self, node: str, now: float) -> Report | None:
        """Return what ``node`` says now; ``None``, unknown, if it said nothing or is silent."""
        heard = self._heard.get(node)
        return None if heard is None or heard.silent(now) else heard.report

    def __iter__(self) -> Iterator[Heard]:
        """Iterate over the last reports of all nodes, those longest ago first."""
        return iter(tuple(self._heard.values()))

    def __len__(self) -> int:
        """Return how many nodes are known."""
        return len(self._heard)
