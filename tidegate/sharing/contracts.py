"""What the courier rests on, and whom it serves."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from tidegate.sharing.operations import Operation

Telling = tuple[Operation, Callable[[str], None] | None]
"""Something to tell or ask, and what is called with the result, if anything."""


class Times(NamedTuple):
    """How long things may take, in seconds.

    Attributes:
        call: one call.
        connect: a connection, which no request waits for.
        lease: how long a reservation lasts of which nobody is heard.
    """

    call: float
    connect: float
    lease: float


class Link(Protocol):
    """A connection; see ``tidegate.sharing.link``."""

    async def open(self) -> None:
        """Connect, or raise ``LinkError``."""
        ...

    async def call(self, arguments: Sequence[str | bytes]) -> object:
        """Run the script, or raise ``LinkError``."""
        ...

    async def close(self) -> None:
        """Drop it."""
        ...


class Clerk(Protocol):
    """Who knows what Redis is to be told besides. No method raises."""

    def forgotten(self) -> None:
        """Redis knows nothing (any more)."""
        ...

    @property
    def has_news(self) -> bool:
        """Whether there is more to be told at once."""
        ...

    def news(self) -> Iterator[Telling]:
        """Yield what is to be told now, with what is called with the result once that has come.

        What was not taken is told again by itself: it is not asked for a second time.
        """
        ...

    def beat(self) -> Iterator[Telling]:
        """Yield what is to be asked now and then; after a failure it is not asked again."""
        ...


class Observer(Protocol):
    """Who counts. No method raises."""

    def called(self, outcome: str, seconds: float) -> None:
        """A call took so long; ``outcome`` is ``ok`` or one of few reasons."""
        ...

    def forgot(self) -> None:
        """Redis lost what it knew."""
        ...
