"""How full a pool is: one figure, and the parts that it is made of.

1.0 is full. The figure is the largest of its parts, because the scarcest thing is what binds, and because a mean would
call a pool with a full KV cache and an empty batch half full.

=========  =============================================================================================================
part       what
=========  =============================================================================================================
``kv``     the share of the engines' KV cache that is in use or spoken for, 0 to 1
``batch``  the share of the places in the engines' batches that is taken, 0 to 1
``queue``  what waits, in the engines and in the pool's own queue, over ``Objective.waiting`` for each endpoint
``ttft``   the time to the first token that a typical request would see now, over ``Objective.ttft_seconds``
=========  =============================================================================================================

The first two say how full a pool is and end at 1; the other two say by how much too full, so that an autoscaler that
divides by the figure adds enough at once.

*Endpoints that say nothing.* The Go endpoint picker's gate calls an endpoint without fresh figures full, and stops
dispatching to a pool when its scrapes fail; its filter calls the same endpoint idle. Here it is neither. What we sent
there and has not ended we know ourselves, however long the engine is silent, and an engine too busy to answer a scrape
does not end our requests either, so that this count rises by itself; beyond that it is taken to bear what the others of
its pool bear (``EndpointView.requests``). How many were silent is told beside the figure. What nobody can know, such as
the KV cache of a pool whose engines never named its size, has no part at all, rather than one of zero.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tidegate.fleet.breaker import Circuit
from tidegate.fleet.capacity import capacity
from tidegate.fleet.health import Reachability
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import EndpointView, PoolView
from tidegate.scheduling.cost import costs

WAITING = 5.0
"""Requests that wait for each endpoint of a pool that is full (the Go endpoint picker's ``queueDepthThreshold``)."""

MOST = 100.0
"""No part is larger: a typical prompt that fits nowhere has no time to its first token, and sums need a number."""

PRESSED = 0.8
"""From this share of its objective on, a pool's time to the first token is about to be too long: what is sent cannot be
taken back, and what is left is for the next seconds' interactive requests."""

KEPT_SECONDS = 0.1
"""How long a figure is good enough for the next who asks: to work it out takes a look at every endpoint."""


class Objective(NamedTuple):
    """What a pool is meant to keep.

    Attributes:
        ttft_seconds: seconds to the first token; ``None`` where nobody said.
        waiting: requests that may wait for each endpoint, above 0.
    """

    ttft_seconds: float | None = None
    waiting: float = WAITING


class Backlog(NamedTuple):
    """What waits in a pool's own queue.

    Attributes:
        requests: requests.
        tokens: tokens of all of them, prompts and expected answers.
        rate: tokens a second that are taken from it; ``None`` when nothing was learned.
    """

    requests: int = 0
    tokens: int = 0
    rate: float | None = None


EMPTY = Backlog()
UNSAID = Objective()


class Saturation(NamedTuple):
    """How full a pool is; each part is explained above, and ``None`` where it is unknown.

    Attributes:
        kv: of the KV cache.
        batch: of the batches.
        queue: of what may wait.
        ttft: of the objective.
        silent: endpoints whose engine should report, and no report of theirs is fresh.
        endpoints: endpoints that may be sent to.
    """

    kv: float | None
    batch: float | None
    queue: float
    ttft: float | None
    silent: int = 0
    endpoints: int = 0

    @property
    def total(self) -> float:
        """The figure: 1 is full, and more than that is too full."""
        return max(part for part in (self.kv, self.batch, self.queue, self.ttft) if part is not None)

    def parts(self) -> tuple[tuple[str, float], ...]:
        """Return the parts that are known, by name, and ``total``."""
        named = (("kv", self.kv), ("batch", self.batch), ("queue", self.queue), ("ttft", self.ttft))
        return (*((name, part) for name, part in named if part is not None), ("total", self.total))

    @property
    def is_pressed(self) -> bool:
        """Whether first tokens are about to come too late, so that batch work had better wait.

        Where nothing runs it is the prompts that take so long, and waiting would not help.
        """
        return self.ttft is not None and self.ttft >= PRESSED and bool(self.batch)


def saturation(
    pool: PoolView, mix: tuple[float, float], objective: Objective = UNSAID, backlog: Backlog = EMPTY
) -> Saturation:
    """Return how full ``pool`` is.

    Args:
        pool: all of its endpoints.
        mix: the mean tokens of its prompts and of its answers (``Fleet.mix``).
        objective: what it is meant to keep.
        backlog: what waits in its own queue.
    """
    endpoints = _usable(pool.endpoints)
    silent = 0 if pool.engine == "none" else sum(one.running is None and one.waiting is None for one in endpoints)
    queue = (backlog.requests + sum(map(_waiting, endpoints))) / (objective.waiting * max(1, len(endpoints)))
    return Saturation(
        _kv(endpoints),
        _batch(endpoints),
        min(MOST, queue),
        _ttft(endpoints, mix, objective.ttft_seconds, backlog),
        silent,
        len(endpoints),
    )


def _usable(endpoints: Sequence[EndpointView]) -> Sequence[EndpointView]:
    """Return those that can be sent to; where all look unreachable, those that Envoy is left with, as a decision does.

    An endpoint that is gone is no room, and its figures of before would make the pool look as full as it was.
    """
    known = [endpoint for endpoint in endpoints if not endpoint.ejected and endpoint.circuit is not Circuit.OPEN]
    return [endpoint for endpoint in known if endpoint.reachability is not Reachability.UNREACHABLE] or known


def _places(endpoint: EndpointView) -> float:
    """Return the places in its batch: as declared, or else as such engines have by default."""
    return endpoint.max_running or endpoint.pace.max_batch


def _waiting(endpoint: EndpointView) -> float:
    """Return how many requests wait in its engine: what it said, or what was sent there beyond its batch since."""
    return max(endpoint.waiting or 0.0, endpoint.requests - _places(endpoint))


def _batch(endpoints: Sequence[EndpointView]) -> float | None:
    places = sum(map(_places, endpoints))
    # One that is overrun does not make the others full.
    return sum(min(one.requests, _places(one)) for one in endpoints) / places if places else None


def _kv(endpoints: Sequence[EndpointView]) -> float | None:
    """Return the share of the KV cache, of those endpoints of which the size or the use of theirs is known.

    Where a size is known all are weighed by it, and who told only its usage as one of the mean size.
    """
    sizes = [one.kv_capacity_tokens for one in endpoints if one.kv_capacity_tokens]
    mean = sum(sizes) / len(sizes) if sizes else 1.0
    used = capacity = 0.0
    for one in endpoints:
        share = one.kv_usage
        if one.kv_capacity_tokens:
            share = max(share or 0.0, one.tokens / one.kv_capacity_tokens)
        if share is not None:
            size = one.kv_capacity_tokens or mean
            used, capacity = used + size * min(1.0, share), capacity + size
    return used / capacity if capacity else None


def _ttft(
    endpoints: Sequence[EndpointView], mix: tuple[float, float], objective: float | None, backlog: Backlog
) -> float | None:
    """Return what a typical request would see, over ``objective``: its turn in the queue, then the best endpoint.

    What waits in an engine counts with the mean prompt where that is more than what we reckon, for others send too.
    """
    if objective is None or not endpoints:
        return None
    prompt, output = mix
    told = [one._replace(backlog=max(one.backlog, (one.waiting or 0.0) * prompt)) for one in endpoints]
    best = min(wait + prefill for _, wait, prefill, *_ in costs(told, round(prompt), round(output)))
    if backlog.tokens:
        # Until a rate was learned it is what busy endpoints of such a pace get done.
        rate = backlog.rate or sum(capacity(one.pace, prompt, output) for one in endpoints) * (prompt + output)
        best += backlog.tokens / rate
    return min(MOST, best / objective)


class Saturations:
    """How full each pool of a fleet is, for whoever asks often."""

    def __init__(self, fleet: Fleet, backlog: Callable[[str], Backlog] = lambda _: EMPTY) -> None:
        """Look at ``fleet``; ``backlog`` says what waits in the queue of the pool of a name."""
        self._fleet = fleet
        self._backlog = backlog
        self._objectives: Mapping[str, Objective] = {}
        self._found: dict[str, tuple[float, Saturation]] = {}

    def configure(self, objectives: Mapping[str, Objective]) -> None:
        """Take over what pools are meant to keep, by their names."""
        self._objectives = dict(objectives)
        self._found.clear()

    def of(self, pool: str, now: float) -> Saturation:
        """Return how full ``pool`` is at ``now`` (seconds), or was ``KEPT_SECONDS`` ago at the most.

        Raises:
            KeyError: there is no such pool.
        """
        found = self._found.get(pool)
        if found is not None and found[0] <= now <= found[0] + KEPT_SECONDS:
            return found[1]
        fleet = self._fleet
        objective = self._objectives.get(pool, UNSAID)
        made = saturation(fleet.view(pool, now), fleet.mix(pool), objective, self._backlog(pool))
        self._found[pool] = now, made
        return made
