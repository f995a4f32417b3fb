"""A policy that cannot run live: it knows how long every answer will be and what every engine truly holds.

For each endpoint it works out what sending the request there costs everybody: how long the request itself takes from
now to its last token, and by how much it delays those that are there. It takes the cheapest. It does not know who comes
next, so it is a bound in practice, not a proof.
"""

import heapq
from collections.abc import Sequence
from typing import Protocol

from tidegate.fleet.endpoint import EndpointSpec
from tidegate.fleet.view import EndpointView
from tidegate.scheduling.request import InferenceRequest
from tidegate.scheduling.rng import Rng
from tidegate.simulator.virtual.blocks import blocks_for
from tidegate.simulator.virtual.engine import VirtualEngine
from tidegate.simulator.virtual.job import Job
from tidegate.simulator.virtual.workload import Arrival

NAME = "oracle"

STRETCH = 1.3
"""By how much the prefills of those who come later stretch an answer."""
WAITING = 2.0
"""What a second of waiting counts: those who come later wait it too. Both were chosen on first halves of traces."""


class Truth(Protocol):
    """What the oracle is told."""

    now: float

    def engine_at(self, place: str) -> VirtualEngine | None:
        """Return the engine at an address, ``None`` while it is down."""
        ...

    def true_request(self, request_id: str) -> Arrival:
        """Return a request with the length of its answer."""
        ...


class Picker:
    """Ranks by the seconds that the request costs all requests together; see the module."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def shortlist(self, request: InferenceRequest, members: Sequence[EndpointSpec], rng: Rng) -> Sequence[int]:  # noqa: ARG002
        """Return all of them: an oracle overlooks nobody."""
        return range(len(members))

    def rank(self, request: InferenceRequest, candidates: Sequence[EndpointView], rng: Rng) -> Sequence[EndpointView]:
        """Return the three cheapest candidates, the cheapest first; the rest could not be named anyway."""
        arrival = self._truth.true_request(request.id)
        costs = []
        for endpoint in candidates:
            engine = self._truth.engine_at(endpoint.address)
            cost = float("inf") if engine is None else cost_of(engine, arrival, self._truth.now)
            costs.append((cost, rng.random(), endpoint))
        return [endpoint for _, _, endpoint in heapq.nsmallest(3, costs, key=lambda one: one[:2])]


def cost_of(engine: VirtualEngine, arrival: Arrival, now: float) -> float:
    """Return the seconds that ``arrival`` costs itself and the others at ``engine``; infinite where it cannot run."""
    if arrival.prompt_tokens + arrival.output_tokens > engine.max_model_len or engine.frozen:
        return float("inf")
    profile = engine.profile
    uncached = arrival.prompt_tokens - _cached(engine, arrival)
    ahead = _to_prefill(engine)
    step = profile.step_seconds(0, engine.decoding.size, engine.decoding.context)
    # Every step of prefill carries the batch's decoding with it.
    carried = step * (1 + (ahead + uncached) // profile.max_num_batched_tokens)
    room = _wait_for_room(engine, arrival, step)
    wait = engine.busy_until(now) - now + max(room, ahead / profile.prefill_tokens_per_second) + carried
    mine = uncached / profile.prefill_tokens_per_second
    added = profile.sequence_seconds + arrival.prompt_tokens * profile.context_token_seconds
    own = WAITING * wait + mine + arrival.output_tokens * STRETCH * step
    others = sum(mine + added * min(engine.remaining(job), arrival.output_tokens) for job in engine.jobs())
    return (own + others) * engine.slow


def _cached(engine: VirtualEngine, arrival: Arrival) -> int:
    reusable = arrival.prefix
    if reusable and len(reusable) * arrival.block_tokens == arrival.prompt_tokens:
        reusable = reusable[:-1]
    return engine.store.match(reusable) * arrival.block_tokens


def _to_prefill(engine: VirtualEngine) -> int:
    """Return the tokens that are to be prefilled before anybody new."""
    tokens = sum(job.known for job in engine.waiting)
    for job in reversed(engine.running):
        if job.ends >= 0:
            break  # those behind it in the batch are older, and generating
        tokens += job.known - job.computed
    return tokens


def _wait_for_room(engine: VirtualEngine, arrival: Arrival, step: float) -> float:
    """Return how long until the KV cache has room for all that wait and this one: until enough have ended."""
    lacking = sum(blocks_for(job.known) for job in engine.waiting) + blocks_for(arrival.prompt_tokens)
    lacking -= engine.store.free
    if lacking <= 0:
        return 0.0
    ends = sorted((engine.remaining(job), -_blocks(job)) for job in engine.running)
    for remaining, blocks in ends:
        lacking += blocks
        if lacking <= 0:
            return remaining * step
    return (ends[-1][0] if ends else 0) * step


def _blocks(job: Job) -> int:
    return blocks_for(job.known)
