"""The stepwise engine model under the same virtual clock, to compare the jumping one with."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.simulator.batching import BatchingEngine
from tidegate.simulator.profiles import Profile
from tidegate.simulator.sequence import EngineRequest
from tidegate.simulator.virtual.engine import VirtualEngine
from tidegate.simulator.virtual.job import Job
from tidegate.simulator.virtual.workload import Arrival


@dataclass
class Served:
    """What became of a request: when its first and last token came (seconds), and what it found in the cache."""

    first_token: float
    finished: float
    cached: int


def profile(**changes: float) -> Profile:
    """Return a small, slow engine."""
    values = {
        "prefill_tokens_per_second": 1_000.0,
        "decode_step_seconds": 0.01,
        "sequence_seconds": 1e-4,
        "context_token_seconds": 1e-6,
        "num_gpu_blocks": 101,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        **changes,
    }
    return Profile("small", **values)  # type: ignore[arg-type]


def stepwise(engine_profile: Profile, arrivals: Sequence[Arrival]) -> tuple[list[Served], int]:
    """Serve ``arrivals`` by the reference, step by step; return what became of each, and the preemptions."""
    engine = BatchingEngine(engine_profile, engine_profile.kv_tokens, 100_000)
    served = [Served(-1, -1, -1) for _ in arrivals]
    now, coming = 0.0, 0
    while True:
        while coming < len(arrivals) and arrivals[coming].at <= now:
            one = arrivals[coming]
            request = EngineRequest(str(coming), one.prompt_tokens, one.output_tokens, 10**9, one.blocks)
            engine.submit([request], one.at)
            coming += 1
        outcome = engine.step(now)
        if outcome is None:
            if coming == len(arrivals):
                return served, engine.counters.preemptions
            now = arrivals[coming].at
            continue
        now += outcome.duration
        for name in outcome.tokens:
            if served[int(name)].first_token < 0:
                served[int(name)].first_token = now
        for done in outcome.finished:
            served[int(done.id)].finished = now
            served[int(done.id)].cached = done.cached_tokens


def jumping(engine: VirtualEngine, arrivals: Sequence[Arrival]) -> list[Job]:
    """Serve ``arrivals`` by the engine under test; return their jobs."""
    jobs = [Job(one.prompt_tokens, one.output_tokens, one.blocks, one.block_tokens) for one in arrivals]
    coming = 0
    while coming < len(jobs) or engine.next_event is not None:
        due = engine.next_event
        if coming < len(jobs) and (due is None or arrivals[coming].at <= due):
            engine.submit(jobs[coming], arrivals[coming].at)
            coming += 1
        elif due is not None:
            engine.advance(due)
    return jobs
