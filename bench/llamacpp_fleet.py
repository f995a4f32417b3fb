"""Real engines for ``bench.validate_simulator``: llama.cpp servers with one thread each, and what the model takes.

The engines hold models of random weights that are written on the spot. What a token costs one of them is measured on it
alone and put into a ``Profile``; the simulator is then asked what a fleet of such engines does.

Everything is measured in seconds that an engine's threads ran, as Linux's ``schedstat`` tells, because the machine is
shared: by engines with each other, with Envoy and with whatever else runs. How much of the time they wanted to run they
did run, it tells too.
"""

import asyncio
import contextlib
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import aiohttp

from tests.e2e.llamacpp import gguf_model
from tests.e2e.llamacpp.engine import Engine, running
from tests.e2e.llamacpp.gguf_model import Shape
from tests.e2e.llamacpp.server import SLOTS
from tidegate.simulator.profiles import BLOCK_SIZE, Profile

SHAPES: Mapping[str, Shape] = MappingProxyType({"small": Shape(384, 6, 1536, 6), "large": Shape(512, 8, 2048, 8)})
"""Models that one thread of a server's core runs at about 600 and 250 prompt tokens, or 500 and 250 tokens, a second:
slow enough for what is around them to be little, and fast enough for a run of a minute."""

BATCH_TOKENS = 2_048
"""llama.cpp's default of ``n_batch``, which a step has at most."""

_SHORT, _LONG, _TOKENS, _ROUNDS = 32, 256, 64, 3
_DIGITS = "123456789 "


class Processor(NamedTuple):
    """What a thread had of the processors so far: the seconds that it ran, and that it waited for one."""

    ran: float
    waited: float


Threads = Mapping[int, Processor]
"""What each thread of an engine had, by its number."""


class Measured(NamedTuple):
    """What was measured on one engine, in seconds that it ran.

    Attributes:
        short: a prompt of ``_SHORT`` tokens, and one token of answer.
        long: a prompt of ``_LONG`` tokens, likewise.
        short_answered: as ``short``, with ``_TOKENS`` tokens more.
        long_answered: as ``long``, likewise.
        together: as many of ``short_answered`` as the engine has slots, all at once.
    """

    short: float
    long: float
    short_answered: float
    long_answered: float
    together: float


@contextlib.contextmanager
def fleet(folder: Path, names: Sequence[str]) -> Iterator[list[Engine]]:
    """Run one engine for each name of ``SHAPES``; yield them once they are healthy."""
    with contextlib.ExitStack() as engines:
        for name in set(names):
            (folder / name).mkdir()
            gguf_model.write(_file(folder, name), seed=0, shape=SHAPES[name])
        yield [
            engines.enter_context(running(_file(folder, name), folder / f"llamacpp-{at}.log"))
            for at, name in enumerate(names)
        ]


def _file(folder: Path, name: str) -> Path:
    return folder / name / f"{gguf_model.NAME}.gguf"


def prompt(number: int, tokens: int) -> str:
    """Return a text of so many tokens of the model: a digit and a space are a token each, and no merge joins them."""
    return (f"{number:09d} " + _DIGITS * (tokens // len(_DIGITS) + 1))[:tokens]


def body(number: int, prompt_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Return a request for an answer of exactly so many tokens, of which nothing is cached."""
    return {
        "model": gguf_model.NAME,
        "prompt": prompt(number, prompt_tokens),
        "max_tokens": output_tokens,
        "ignore_eos": True,
        "cache_prompt": False,
        "stream": True,
    }


def threads(engine: Engine) -> Threads:
    """Return what the threads of ``engine`` had so far."""
    found = {}
    for thread in Path(f"/proc/{engine.process.pid}/task").iterdir():
        ran, waited, _ = (int(figure) for figure in (thread / "schedstat").read_text().split())
        found[int(thread.name)] = Processor(ran / 1e9, waited / 1e9)
    return found


def share(before: Threads, after: Threads) -> float:
    """Return which share, over 0 to 1, of the time that an engine wanted to run in between it did run.

    The thread that ran most counts, which is the one that computes: those that talk to clients wait beside it.
    """
    nothing = Processor(0.0, 0.0)
    most = max(after, key=lambda thread: after[thread].ran - before.get(thread, nothing).ran)
    ran, waited = (now - then for now, then in zip(after[most], before.get(most, nothing), strict=True))
    return ran / (ran + waited) if ran > 0 else 1.0


async def calibrate(engine: Engine) -> Measured:
    """Measure ``engine``, which is idle; the middle one of three rounds counts, figure by figure."""
    connector = aiohttp.TCPConnector(force_close=True)  # llama.cpp closes a connection after an answer
    timeout = aiohttp.ClientTimeout(total=120)
    more = 1 + _TOKENS
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        await _cost(session, engine, _SHORT, more)  # the first one pays for what is set up only once
        rounds = [
            Measured(
                await _cost(session, engine, _SHORT, 1),
                await _cost(session, engine, _LONG, 1),
                await _cost(session, engine, _SHORT, more),
                await _cost(session, engine, _LONG, more),
                await _cost(session, engine, _SHORT, more, SLOTS),
            )
            for _ in range(_ROUNDS)
        ]
    return Measured(*map(statistics.median, zip(*rounds, strict=True)))


async def _cost(session: aiohttp.ClientSession, engine: Engine, prompt: int, output: int, count: int = 1) -> float:
    before = _ran(engine)
    await asyncio.gather(*(_asked(session, engine, body(number, prompt, output)) for number in range(count)))
    return _ran(engine) - before


def _ran(engine: Engine) -> float:
    return sum(one.ran for one in threads(engine).values())


async def _asked(session: aiohttp.ClientSession, engine: Engine, body: dict[str, Any]) -> None:
    headers = {"content-type": "application/json"}
    async with session.post(f"{engine.url}/v1/completions", data=json.dumps(body), headers=headers) as answer:
        answer.raise_for_status()
        await answer.read()


def profile(name: str, measured: Measured) -> Profile:
    """Return the engine as the simulator's model has it.

    A step costs ``d + prefill / rate + n * s + context * c``. What the two prompts cost gives ``rate``, and what tokens
    after them cost ``c``; one and ``SLOTS`` at once give ``s``; ``d`` is what is left. Every slot has room of its own
    for the longest request, so blocks never run out.
    """
    alone = (measured.short_answered - measured.short) / _TOKENS
    behind_long = (measured.long_answered - measured.long) / _TOKENS
    together = (measured.together - SLOTS * measured.short) / _TOKENS
    context = max(0.0, (behind_long - alone) / (_LONG - _SHORT))
    held = context * (_SHORT + _TOKENS / 2)  # of each request, on average over its answer
    sequence = max(0.0, (together - alone) / (SLOTS - 1) - held)
    return Profile(
        name=name,
        prefill_tokens_per_second=(_LONG - _SHORT) / max(1e-6, measured.long - measured.short),
        decode_step_seconds=max(1e-4, alone - sequence - held),
        sequence_seconds=sequence,
        context_token_seconds=context,
        num_gpu_blocks=1 + SLOTS * gguf_model.CONTEXT // BLOCK_SIZE,
        max_num_seqs=SLOTS,
        max_num_batched_tokens=BATCH_TOKENS,
    )


def told(one: Profile) -> str:
    """Say what was measured, in one line."""
    return (
        f"{one.name}: {one.prefill_tokens_per_second:.0f} prompt tokens/s; a step takes "
        f"{one.decode_step_seconds * 1e3:.2f} ms, {one.sequence_seconds * 1e3:.2f} ms more for each request in it, "
        f"{one.context_token_seconds * 1e6:.2f} us for each token of context; {one.max_num_seqs} slots"
    )
