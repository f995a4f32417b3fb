"""Which endpoints requests may go to, whatever room is there: by the model asked for, and by who narrowed it down.

What is kept free for the more important is kept where they may go. A place that they can never take is nobody's but the
others'.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.subset import Subset

MOST_REACHES: Final = 16
"""What is told apart of one priority; beyond that its requests are taken to go anywhere."""


class Reach(NamedTuple):
    """Where a request may go.

    Attributes:
        model: what is asked for; endpoints that name other models alone are out of reach.
        among: it may go only to endpoints that are in all of these.
    """

    model: str = ""
    among: tuple[Subset, ...] = ()

    @classmethod
    def of(cls, request: InferenceRequest) -> "Reach":
        """Return where ``request`` may go."""
        return cls(request.model, request.among)

    def has(self, endpoint: EndpointView) -> bool:
        """Return whether ``endpoint`` is there."""
        if endpoint.models and self.model not in endpoint.models:
            return False
        return not self.among or all(endpoint.address in subset for subset in self.among)


Reaches = tuple[Reach, ...]
"""Where several may go, each for itself; empty for anywhere."""


def within(endpoints: Sequence[EndpointView], reaches: Reaches) -> Sequence[EndpointView]:
    """Return those of ``endpoints`` to which any of ``reaches`` leads."""
    if not reaches:
        return endpoints
    return [endpoint for endpoint in endpoints if any(reach.has(endpoint) for reach in reaches)]


def together(each: Iterable[Reaches]) -> Reaches:
    """Return where all of ``each`` may go together."""
    found: dict[Reach, None] = {}
    for reaches in each:
        if not reaches:
            return ()
        found.update(dict.fromkeys(reaches))
    return tuple(found)


class Asked:
    """Where the requests of one priority may go, as far as they came of late. ``None`` stands for anywhere."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[Reach | None, float] = {}

    def add(self, reach: Reach | None, now: float, seconds: float) -> None:
        """Take note of a request of ``now`` (seconds); those of more than ``seconds`` ago may be forgotten."""
        self._last[reach] = now
        if len(self._last) > MOST_REACHES:
            self._last = {one: last for one, last in self._last.items() if now - last < seconds}
            if len(self._last) > MOST_REACHES:
                self._last = {None: now}

    def since(self, then: float) -> Reaches:
        """Return where those of after ``then`` (seconds) may go."""
        late = [reach for reach, last in self._last.items() if last > then]
        return () if None in late else tuple(reach for reach in late if reach is not None)
