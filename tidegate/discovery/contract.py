"""What every source of endpoints says, and how it is run.

A source says everything it knows at least once (``Reset``, a complete pass), and then what changed, or everything
again. It says that a pass failed, and says nothing of endpoints then: what was last said of them stays. It judges
nothing: what may be taken for true, and when, is decided once for all sources (``held``).
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple, Protocol

from tidegate.fleet.endpoint import EndpointSpec

MAX_ENDPOINTS = 10_000
"""Endpoints that one source may say; what comes beyond that is left out, and counted."""

MAX_REASON = 300
"""Characters of a failure's reason that are kept."""


class Found(NamedTuple):
    """An endpoint that a source knows.

    Attributes:
        endpoint: as a pool has it.
        engine: the dialect of its metrics; empty for that of its pool.
    """

    endpoint: EndpointSpec
    engine: str = ""


class Upserted(NamedTuple):
    """There is, or still is, an endpoint under ``key``, the source's own name for it."""

    key: str
    found: Found


class Removed(NamedTuple):
    """There is none under ``key`` any more."""

    key: str


class Reset(NamedTuple):
    """A complete pass: ``found`` is all there is, by key."""

    found: Mapping[str, Found]


class Failed(NamedTuple):
    """A pass, or an attempt at one, came to nothing; ``reason`` is one line for logs."""

    reason: str


class Rewrite(NamedTuple):
    """Models that have another name in a pool.

    Attributes:
        name: what says so.
        models: the names that are asked for; empty for all.
        targets: the names by which the engines are asked instead, each with its share, in proportion to the others'.
    """

    name: str
    models: tuple[str, ...]
    targets: tuple[tuple[str, float], ...]


class Steering(NamedTuple):
    """What a source says of the requests to its endpoints.

    Attributes:
        objectives: the priorities that requests may have, by the names that they ask for them by.
        rewrites: the first that fits counts.
    """

    objectives: tuple[tuple[str, int], ...] = ()
    rewrites: tuple[Rewrite, ...] = ()


class Steered(NamedTuple):
    """What is said of requests now; ``None`` where that cannot be read, for a ``reason``: what was said goes on."""

    steering: Steering | None
    reason: str = ""


News = Upserted | Removed | Reset | Failed | Steered
Tell = Callable[[News], None]


class Source(Protocol):
    """One source, which a task of its own runs."""

    async def run(self, tell: Tell, asked: asyncio.Event) -> None:
        """Tell what there is, for ever. When ``asked`` is set, clear it and make a complete pass soon."""


async def waited(asked: asyncio.Event, seconds: float) -> bool:
    """Wait ``seconds``, or until a pass is asked for; return whether it was."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asked.wait(), seconds)
    was_asked = asked.is_set()
    asked.clear()
    return was_asked


class Backoff:
    """How long to wait after each of several failures in a row: longer and longer, and never in step with others."""

    def __init__(self, rng: Random, least: float = 1.0, most: float = 30.0) -> None:
        """Wait about ``least`` seconds first, then twice as long each time, ``most`` at last."""
        self._rng = rng
        self._least, self._most = least, most
        self._failures = 0

    def succeeded(self) -> None:
        """Begin anew."""
        self._failures = 0

    def failed(self) -> float:
        """Return how many seconds to wait after one more failure."""
        # The exponent is bounded because a float is.
        seconds = min(self._most, self._least * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return jittered(seconds, self._rng)


def jittered(seconds: float, rng: Random) -> float:
    """Return ``seconds`` or up to a quarter less, so that many who began together do not stay together."""
    return seconds * (1 - 0.25 * rng.random())
