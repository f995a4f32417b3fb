"""Small engines for tests: a few blocks, round numbers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from tidegate.simulator.batching import BatchingEngine
from tidegate.simulator.profiles import BLOCK_SIZE, PROFILES, Profile
from tidegate.simulator.sequence import EngineRequest, StepOutcome
from tidegate.simulator.server import serve
from tidegate.simulator.settings import EngineSettings

SMALL = Profile(
    name="small",
    prefill_tokens_per_second=1000.0,
    decode_step_seconds=0.01,
    sequence_seconds=0.001,
    context_token_seconds=0.0,
    num_gpu_blocks=33,
    max_num_seqs=4,
    max_num_batched_tokens=64,
)
"""32 usable blocks, so 512 tokens."""


def small_engine(max_queue: int = 100, **changes: Any) -> BatchingEngine:
    """Return an engine of ``SMALL`` with some of its numbers changed."""
    profile = replace(SMALL, **changes)
    return BatchingEngine(profile, profile.kv_tokens, max_queue)


def keys(prefix: str, prompt_tokens: int, own: str, output_tokens: int) -> list[tuple[str, int]]:
    """Return block keys of a prompt that begins as all of ``prefix`` do, and of an answer that is its own."""
    full = (prompt_tokens + output_tokens) // BLOCK_SIZE
    return [(prefix if at < prompt_tokens // BLOCK_SIZE else own, at) for at in range(full)]


def engine_request(
    request_id: str, prompt: int = 20, output: int = 4, *, prefix: str | None = None, limit: int | None = None
) -> EngineRequest:
    """Return a request of ``prompt`` and ``output`` tokens; those with the same ``prefix`` begin alike."""
    block_keys = keys(prefix or request_id, prompt, request_id, output)
    return EngineRequest(request_id, prompt, output, output if limit is None else limit, block_keys)


def run_to_end(engine: BatchingEngine, now: float = 0.0, most_steps: int = 10_000) -> list[StepOutcome]:
    """Step until nothing is left, and return what the steps brought."""
    outcomes: list[StepOutcome] = []
    while (outcome := engine.step(now)) is not None:
        now += outcome.duration
        outcomes.append(outcome)
        assert len(outcomes) < most_steps, "the engine does not come to an end"
    return outcomes


def settings(**changes: Any) -> EngineSettings:
    """Return the settings of a fast H100 on a free port."""
    given: dict[str, Any] = {"port": 0, "profile": PROFILES["h100"], "speed": 20.0, **changes}
    return EngineSettings(**given)


@asynccontextmanager
async def serving(*engines: EngineSettings) -> AsyncIterator[list[str]]:
    """Serve ``engines`` in this process; give their base URLs."""
    stop = asyncio.Event()
    ready: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(engines, stop, ready.set_result))
    task.add_done_callback(lambda _: ready.cancel())
    try:
        addresses = await ready
    except asyncio.CancelledError:
        await task  # it says why nothing listens
        raise
    try:
        yield [f"http://{address}" for address in addresses]
    finally:
        stop.set()
        await task
