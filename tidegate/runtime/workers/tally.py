"""The figures of a worker on their way to the one page where they are shown."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tidegate.runtime.figures import Figures
from tidegate.telemetry.metrics import Metrics

Argument = str | float
Call = tuple[str, tuple[Argument, ...], int]

RELAYED: Final = (
    Figures.received,
    Figures.picked,
    Figures.refused,
    Figures.tokens_counted,
    Figures.decided,
    Figures.queued,
    Figures.unqueued,
    Figures.turned_away,
    Figures.wait_foretold,
    Figures.ext_proc_opened,
    Figures.ext_proc_closed,
)
"""What a worker may have counted by the main process."""

LOST = "failed"
"""The outcome of the streams that a worker had open when it died."""


class Tally:
    """Remembers what was counted, equal calls as one, until it is taken."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, tuple[Argument, ...]]] = Counter()

    def take(self) -> tuple[Call, ...]:
        """Return what was counted since the last time."""
        calls, self._calls = self._calls, Counter()
        return tuple((name, arguments, times) for (name, arguments), times in calls.items())

    def received(self, pool: str) -> None:
        """Remember the call; so do the others."""
        self._calls["received", (pool,)] += 1

    def picked(self, pool: str, endpoint: str, policy: str) -> None:
        """See ``received``."""
        self._calls["picked", (pool, endpoint, policy)] += 1

    def refused(self, api: str, reason: str) -> None:
        """See ``received``."""
        self._calls["refused", (api, reason)] += 1

    def tokens_counted(self, source: str, seconds: float) -> None:
        """See ``received``."""
        self._calls["tokens_counted", (source, seconds)] += 1

    def decided(self, seconds: float) -> None:
        """See ``received``."""
        self._calls["decided", (seconds,)] += 1

    def queued(self, pool: str, kind: str) -> None:
        """See ``received``."""
        self._calls["queued", (pool, kind)] += 1

    def unqueued(self, pool: str, kind: str, outcome: str, seconds: float) -> None:
        """See ``received``."""
        self._calls["unqueued", (pool, kind, outcome, seconds)] += 1

    def turned_away(self, pool: str, kind: str, reason: str) -> None:
        """See ``received``."""
        self._calls["turned_away", (pool, kind, reason)] += 1

    def wait_foretold(self, pool: str, seconds: float) -> None:
        """See ``received``."""
        self._calls["wait_foretold", (pool, seconds)] += 1

    def ext_proc_opened(self) -> None:
        """See ``received``."""
        self._calls["ext_proc_opened", ()] += 1

    def ext_proc_closed(self, outcome: str) -> None:
        """See ``received``."""
        self._calls["ext_proc_closed", (outcome,)] += 1

    def unauthenticated(self, why: str) -> None:
        """See ``received``; it is none of ``Figures``."""
        self._calls["unauthenticated", (why,)] += 1


class Relay:
    """Counts in the main process what one worker has counted."""

    def __init__(self, metrics: Metrics, others: Mapping[str, Callable[..., None]] = MappingProxyType({})) -> None:
        """Count in ``metrics``, and by ``others`` what is called as they are."""
        self._metrics = metrics
        self._methods: dict[str, Callable[..., None]] = {
            method.__name__: getattr(metrics, method.__name__) for method in RELAYED
        }
        self._methods |= others
        self._open = 0
        self._waiting: Counter[tuple[Argument, ...]] = Counter()

    def count(self, calls: Iterable[Call]) -> None:
        """Count ``calls``; a name that is not known is passed over."""
        for name, arguments, times in calls:
            method = self._methods.get(name)
            if method is None:
                continue
            self._open += times * ((name == "ext_proc_opened") - (name == "ext_proc_closed"))
            if name in {"queued", "unqueued"}:
                self._waiting[arguments[:2]] += times if name == "queued" else -times
            for _ in range(times):
                method(*arguments)

    def close(self) -> None:
        """Count what the worker had open, and what waited there, as lost: it is dead."""
        for _ in range(self._open):
            self._metrics.ext_proc_closed(LOST)
        self._open = 0
        for (pool, kind), times in self._waiting.items():
            for _ in range(times):
                self._metrics.unqueued(str(pool), str(kind), LOST, 0.0)
        self._waiting.clear()
