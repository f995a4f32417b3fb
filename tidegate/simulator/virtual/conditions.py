"""What surrounds a simulated fleet: how late news is, and what goes wrong."""

import enum
from dataclasses import dataclass


class FaultKind(enum.Enum):
    """What can happen to an engine."""

    DIE = "die"
    """Its process ends: all its requests fail, connections are refused; later it starts anew, with an empty cache."""
    FREEZE = "freeze"
    """No step is done and the gauges stay as they are, while it goes on answering scrapes and taking in requests."""
    SLOW = "slow"
    """Every step takes ten times as long."""


SLOW_FACTOR = 10.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to one endpoint.

    Attributes:
        kind: what.
        endpoint: to which, by number from 0.
        at: when it begins, in seconds.
        seconds: how long it lasts.
    """

    kind: FaultKind
    endpoint: int
    at: float
    seconds: float

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Read ``die:3@60+30``: endpoint number 3 dies at 60 s, for 30 s.

        Raises:
            ValueError: it is not of that form.
        """
        try:
            kind, _, rest = text.strip().partition(":")
            endpoint, _, when = rest.partition("@")
            begin, _, seconds = when.partition("+")
            fault = cls(FaultKind(kind), int(endpoint), float(begin), float(seconds))
        except ValueError:
            fault = None
        if fault is None or fault.endpoint < 0 or not (0 <= fault.at < 1e9 and 0 < fault.seconds < 1e9):
            kinds = ", ".join(kind.value for kind in FaultKind)
            raise ValueError(f"{text!r} is no fault; expected KIND:ENDPOINT@SECOND+SECONDS with a kind of {kinds}")
        return fault


@dataclass(frozen=True, slots=True)
class Conditions:
    """How late news is, and what goes wrong; seconds throughout.

    Attributes:
        scrape_interval: from one scrape of an endpoint to its next.
        scrape_delay: from what an engine says to its arrival here.
        end_delay: from a request's end to the access log's entry (Envoy's buffer flushes so often).
        connect: what a refused connection costs before the next endpoint named is tried.
        faults: what goes wrong.
    """

    scrape_interval: float = 1.0
    scrape_delay: float = 0.02
    end_delay: float = 0.1
    connect: float = 0.001
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        if self.scrape_interval <= 0 or min(self.scrape_delay, self.end_delay, self.connect) < 0:
            raise ValueError("the scrape interval must be positive, and no delay negative")
