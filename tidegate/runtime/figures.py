"""What a process that decides counts, wherever it is kept."""

from typing import Protocol


class Figures(Protocol):
    """Keeps the figures of the request path; ``Metrics`` is one. Each method counts one thing, as described there."""

    def received(self, pool: str) -> None:
        """Count a request that asked for an endpoint."""
        ...

    def picked(self, pool: str, endpoint: str, policy: str) -> None:
        """Count a decision."""
        ...

    def refused(self, api: str, reason: str) -> None:
        """Count a refusal."""
        ...

    def tokens_counted(self, source: str, seconds: float) -> None:
        """Count a prompt whose tokens were counted."""
        ...

    def decided(self, seconds: float) -> None:
        """Record how long a decision took."""
        ...

    def queued(self, pool: str, kind: str) -> None:
        """Count a request that waits."""
        ...

    def unqueued(self, pool: str, kind: str, outcome: str, seconds: float) -> None:
        """Count one that no longer does."""
        ...

    def turned_away(self, pool: str, kind: str, reason: str) -> None:
        """Count one that did not get to wait."""
        ...

    def wait_foretold(self, pool: str, seconds: float) -> None:
        """Record by how much a wait was shorter than foretold."""
        ...

    def ext_proc_opened(self) -> None:
        """Count a stream as open."""
        ...

    def ext_proc_closed(self, outcome: str) -> None:
        """Count it as ended."""
        ...
