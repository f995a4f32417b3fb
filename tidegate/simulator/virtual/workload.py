"""What the clients ask, and when."""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request as a client sends it, with what only the simulator knows of its answer.

    Attributes:
        at: seconds since the workload's start.
        prompt_tokens: tokens to prefill, 1 or more.
        output_tokens: tokens that the answer will have, 1 or more. No policy sees them.
        blocks: for each full block of the prompt, and of the answer where that is known, what stands for everything up
            to its end: equal ones mean an equal prefix.
        block_tokens: tokens in a block.
        session: what the requests of one session have in common; empty outside of one.
        max_tokens: the most output tokens that the client says it will take; ``None`` when it sets no limit.
        tenant: whose it is; empty for nobody known.
        priority: larger is more urgent; below 0 it is batch work.
    """

    at: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    session: str = ""
    max_tokens: int | None = None
    tenant: str = ""
    priority: int = 0

    @property
    def prefix(self) -> tuple[int, ...]:
        """The blocks of the prompt alone: those that whoever decides can know."""
        return self.blocks[: self.prompt_tokens // self.block_tokens] if self.blocks else ()


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in the order of their arrival.

    Attributes:
        name: for reports.
        arrivals: the requests.
    """

    name: str
    arrivals: Sequence[Arrival]

    def __post_init__(self) -> None:
        if not self.arrivals:
            raise ValueError(f"the workload {self.name} has no requests")

    @property
    def seconds(self) -> float:
        """From the first arrival to the last."""
        return self.arrivals[-1].at - self.arrivals[0].at

    @property
    def rate(self) -> float:
        """Mean requests per second; infinite when all come at once."""
        return (len(self.arrivals) - 1) / self.seconds if self.seconds else float("inf")

    def at_rate(self, rate: float) -> "Workload":
        """Return the same requests ``rate`` times a second on average: time is stretched or pressed, evenly.

        Raises:
            ValueError: ``rate`` is not positive.
        """
        if rate <= 0:
            raise ValueError("the rate must be positive")
        start, factor = self.arrivals[0].at, self.rate / rate if self.seconds else 1.0
        return Workload(self.name, [replace(one, at=(one.at - start) * factor) for one in self.arrivals])

    def part(self, begin: float, end: float) -> "Workload":
        """Return the requests from share ``begin`` to share ``end`` (0 to 1) of them, in time's order.

        Raises:
            ValueError: no request is in it.
        """
        first, last = (round(share * len(self.arrivals)) for share in (begin, end))
        start = self.arrivals[min(first, len(self.arrivals) - 1)].at
        return Workload(self.name, [replace(one, at=one.at - start) for one in self.arrivals[first:last]])
