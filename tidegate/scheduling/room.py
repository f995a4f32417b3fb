"""Room for one more request: what an endpoint must have, where a pool's requests can wait for it.

An engine has room where its batch takes one more request and its KV cache the tokens, and its VRAM where that is what
bounds it. How large these are is

- declared (``max_running``), or reported (the KV cache), and then remembered: an engine that is silent has not become
  smaller, nor larger;
- or learned: an engine that keeps requests waiting while it runs no more than before has a full batch.

An engine that still has to prefill what it got has no room either, however large its batch: it works through prompts in
their order, and whoever waits there can no longer be passed by somebody more important, nor go elsewhere.

Of an endpoint of which none of this is known nobody can say that it is full. It takes everything, as it does in a pool
without a queue: unknown is not zero. A pool of such endpoints alone has no queue.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidegate.fleet.breaker import Circuit
from tidegate.fleet.health import Reachability
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.filters import ROOM, Filter, find
from tidegate.scheduling.reach import Reaches, within
from tidegate.scheduling.request import InferenceRequest

ENGINE_WAITING = 4
"""Requests that may wait in an engine whose batch is learned, so that it has something to go on with."""

PREFILL_SECONDS = 0.25
"""Seconds of prefill that may be before an engine: enough to keep it busy until it is looked at again. With twice as
much, urgent requests see their first token a quarter later where a fleet is overloaded; with four times, twice as late.
"""

GROWTH = 1.25
"""By how much a learned batch is taken to be larger when an engine runs that many and nothing waits in it."""

FORGET_SECONDS = 60.0
"""For how long a learned batch is believed after the engine was last seen full."""

SAME_SECONDS = 0.02
"""How exactly it is known when a report came: views are up to 10 ms old."""

RAMP_REQUESTS = 4
RAMP_DOUBLES_SECONDS = 1.0
RAMP_SECONDS = 10.0
"""An endpoint that comes back, while requests wait, has so many in flight at first and twice as many each second: what
killed it may have been a burst, and its cache is cold."""


class _Batch:
    """What is learned of one engine's batch.

    Attributes:
        size: requests that fit into it; ``None`` before it was seen full.
        full_at: when it was last, in seconds.
        reported_at: when the report last learned from came, in seconds.
        running: requests that it ran then, if some were waiting.
    """

    __slots__ = ("full_at", "reported_at", "running", "size")

    def __init__(self) -> None:
        self.size: float | None = None
        self.full_at = 0.0
        self.reported_at = 0.0
        self.running: float | None = None

    def learn(self, running: float, waiting: float, reported_at: float) -> None:
        """Learn from a report of ``reported_at`` (seconds), of a time at which so many were running and waiting."""
        if reported_at <= self.reported_at + SAME_SECONDS:
            return
        self.reported_at = reported_at
        if waiting > ENGINE_WAITING:
            # Twice: requests that came in a burst wait for the next step, and then the batch grows.
            if self.running is not None and running <= self.running:
                self.size, self.full_at = max(1.0, running), reported_at
            self.running = running
            return
        self.running = None
        if self.size is not None and waiting == 0 and running >= self.size:
            self.size = max(self.size * GROWTH, self.size + ENGINE_WAITING)
        if reported_at - self.full_at > FORGET_SECONDS:
            self.size = None


class Claim(NamedTuple):
    """What the request at hand may take.

    Attributes:
        share: of an endpoint's batch and KV cache, 0 to 1.
        kept: places that it leaves free in the pool, for whoever is more important.
        each: tokens that such a one takes; 0 is unknown.
        prefill_seconds: seconds of prefill that may be before an endpoint.
        theirs: where the more important may go, and places are kept.
    """

    share: float = 1.0
    kept: int = 0
    each: float = 0.0
    prefill_seconds: float = PREFILL_SECONDS
    theirs: Reaches = ()


ALL = Claim()
"""The claim of the most important."""


class Room:
    """Which endpoints of one pool have room.

    Attributes:
        filter: leaves out those that have none; with nobody left, a request waits.
        wanted: requests wait for room, and whoever comes goes behind them.
        max_running: the most requests in the batch of an endpoint that does not say so; ``None`` to learn it.
        claim: what the request at hand may take.
        everybody: returns all of the pool's endpoints as they are now, where that is known and not only who may serve
            the request at hand.
    """

    def __init__(self, max_running: int | None = None) -> None:
        self.max_running = max_running
        self.filter = Filter(ROOM, self.keep, hard=True)
        self.wanted = False
        self.claim = ALL
        self.everybody: Callable[[], Sequence[EndpointView]] | None = None
        self._kv: dict[str, float] = {}
        self._batches: dict[str, _Batch] = {}
        self._limits: dict[str, float] = {}
        self._gone: set[str] = set()
        self._back: dict[str, float] = {}
        self._ramp: dict[str, float] = {}

    def keep(  # noqa: C901  written out and without calls, as ``fits``: it is in the way of every request
        self, request: InferenceRequest, candidates: Sequence[EndpointView]
    ) -> Sequence[EndpointView]:
        """Return the candidates that have room for ``request``."""
        needed = request.prompt.tokens + (request.output_tokens or 0)
        (share, keep, _, before, _), default, limits, ramp = self.claim, self.max_running, self._limits, self._ramp
        offered = self._offered(candidates) if keep else candidates
        bounded = default is not None or bool(limits)
        kept: list[EndpointView] = []
        empty: list[EndpointView] = []
        for endpoint in offered:
            most: float | None = endpoint.max_running
            capacity, vram = endpoint.kv_capacity_tokens, endpoint.vram_room_tokens
            if most is None and bounded:
                most = limits.get(endpoint.address) if default is None else default
            if capacity is None:
                capacity = self._kv.get(endpoint.address)
                if capacity is None and most is None and vram is None:
                    kept.append(endpoint)
                    continue
            if most is not None and endpoint.requests >= most * share:
                continue
            if endpoint.backlog and endpoint.requests and endpoint.backlog * endpoint.pace.prefill_seconds > before:
                continue
            if capacity is not None or vram is not None:
                usage, least = endpoint.kv_usage, needed - endpoint.cached_tokens
                if (
                    capacity is not None
                    and (
                        capacity * share - endpoint.tokens < least
                        or (usage is not None and capacity * (share - usage) < least)
                    )
                ) or (vram is not None and vram < least):
                    if not endpoint.requests:
                        empty.append(endpoint)
                    continue
            if ramp and endpoint.inflight_requests >= ramp.get(endpoint.address, endpoint.inflight_requests + 1):
                continue
            kept.append(endpoint)
        if not kept:
            kept = self._largest(empty, candidates) if empty else kept
        if kept and kept[0].reachability is Reachability.UNREACHABLE and self._knows(candidates):
            # Nobody better was there: those that cannot be reached have no room either.
            return find("reachable").keep(request, kept)
        return kept

    def _offered(self, candidates: Sequence[EndpointView]) -> Sequence[EndpointView]:
        """Return the candidates that the claim's request may take a place of without taking one that is kept.

        Kept places are counted where the more important may go, in all of the pool: where this request may go, they
        need not have any.
        """
        _, keep, each, _, theirs = self.claim
        kept = within(candidates, theirs)
        if not kept or self._free(kept, each) > keep:
            return candidates
        if self.everybody is not None and self._free(within(_sound(self.everybody()), theirs), each) > keep:
            return candidates
        addresses = {endpoint.address for endpoint in kept}
        return [endpoint for endpoint in candidates if endpoint.address not in addresses]

    def _free(self, endpoints: Sequence[EndpointView], each: float) -> float:
        return sum(self._places(endpoint, each, free=True) for endpoint in endpoints)

    def places(self, endpoints: Sequence[EndpointView], each: float) -> float:
        """Return how many requests of ``each`` so many tokens ``endpoints`` hold together; infinite is unknown."""
        return sum(self._places(one, each) for one in _reached(endpoints))

    def _places(self, endpoint: EndpointView, each: float, *, free: bool = False) -> float:
        """Return how many requests of ``each`` so many tokens an endpoint holds, or has room for."""
        batch, cache = self.batch(endpoint), endpoint.kv_capacity_tokens
        if cache is None:
            cache = self._kv.get(endpoint.address)
        places = math.inf
        if batch is not None:
            places = batch - endpoint.requests if free else batch
        if cache is not None and each > 0:
            places = min(places, ((cache - endpoint.tokens) if free else cache) / each)
        return max(0.0, places)

    def _knows(self, candidates: Sequence[EndpointView]) -> bool:
        """Return whether it is known of anybody how large it is."""
        declared = any(one.max_running or one.kv_capacity_tokens or one.vram_room_tokens for one in candidates)
        return declared or bool(self.max_running or self._kv or self._limits)

    def _largest(self, empty: Sequence[EndpointView], candidates: Sequence[EndpointView]) -> list[EndpointView]:
        """Return those of ``empty`` for which nothing larger is there: what does not fit there fits nowhere."""

        def size(endpoint: EndpointView) -> float:
            capacity = endpoint.kv_capacity_tokens
            return capacity if capacity is not None else self._kv.get(endpoint.address, 0.0)

        most = max(size(endpoint) for endpoint in candidates)
        return [endpoint for endpoint in empty if size(endpoint) >= most]

    def learn(self, endpoints: Sequence[EndpointView], now: float) -> None:
        """Learn from how the pool's ``endpoints``, all of them, are at ``now`` (seconds); often and after changes."""
        here = {endpoint.address for endpoint in endpoints}
        new = here - self._batches.keys() if self._batches else set()
        self._kv = {address: tokens for address, tokens in self._kv.items() if address in here}
        self._batches = {address: batch for address, batch in self._batches.items() if address in here}
        self._gone &= here
        for endpoint in endpoints:
            address = endpoint.address
            if endpoint.kv_capacity_tokens is not None:
                self._kv[address] = endpoint.kv_capacity_tokens
            batch = self._batches.setdefault(address, _Batch())
            if endpoint.running is not None and endpoint.waiting is not None and endpoint.report_age is not None:
                batch.learn(endpoint.running, endpoint.waiting, now - endpoint.report_age)
            if endpoint.reachability is Reachability.UNREACHABLE:
                self._gone.add(address)
            elif address in self._gone or (address in new and self.wanted):
                self._gone.discard(address)
                self._back[address] = now
        sizes = {address: batch.size for address, batch in self._batches.items()}
        self._limits = {address: size + ENGINE_WAITING for address, size in sizes.items() if size is not None}
        self._back = {
            address: back for address, back in self._back.items() if address in here and now - back < RAMP_SECONDS
        }
        self._ramp = {
            address: RAMP_REQUESTS * 2.0 ** ((now - back) / RAMP_DOUBLES_SECONDS)
            for address, back in self._back.items()
        }

    def batch(self, endpoint: EndpointView) -> float | None:
        """Return how many requests ``endpoint`` takes into its batch, declared or learned; ``None`` is unknown."""
        declared = self.max_running if endpoint.max_running is None else endpoint.max_running
        return self._limits.get(endpoint.address) if declared is None else declared


def _reached(endpoints: Sequence[EndpointView]) -> Sequence[EndpointView]:
    return [one for one in endpoints if not one.ejected and one.reachability is not Reachability.UNREACHABLE]


def _sound(endpoints: Sequence[EndpointView]) -> Sequence[EndpointView]:
    """Return those of ``endpoints`` to which anything may be sent now."""
    return [one for one in _reached(endpoints) if one.circuit is Circuit.CLOSED]
