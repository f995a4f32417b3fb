"""Real engines for ``bench.validate_simulator``: llama.cpp servers with one thread each, and what the model takes.

The engines hold models of random weights that are written on the spot. How fast one of them is, is measured on it alone
and put into a ``Profile``; the simulator is then asked what a fleet of such engines does.
"""

import asyncio
import contextlib
import json
import statistics
import time
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

_SHORT, _LONG, _TOKENS, _REPEATS = 32, 512, 48, 3
_DIGITS = "123456789 "


class Timing(NamedTuple):
    """Seconds to an answer's first token, and per token after it."""

    ttft: float
    tpot: float


class Measured(NamedTuple):
    """What was measured on one engine, in seconds.

    Attributes:
        short: one request with a prompt of ``_SHORT`` tokens.
        long: one request with a prompt of ``_LONG`` tokens.
        together: the mean of as many short ones as the engine has slots, all at once.
    """

    short: Timing
    long: Timing
    together: Timing


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


async def calibrate(engine: Engine) -> Measured:
    """Measure ``engine``, which is idle; the middle one of three rounds counts."""
    timeout = aiohttp.ClientTimeout(total=120)
    connector = aiohttp.TCPConnector(force_close=True)  # llama.cpp closes a connection after an answer
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        url = f"{engine.url}/v1/completions"
        await _timed(session, url, 0, _SHORT, 8)  # the first one pays for what is set up only once
        number = 1
        rounds: list[Measured] = []
        for _ in range(_REPEATS):
            short = await _timed(session, url, number, _SHORT, _TOKENS)
            long = await _timed(session, url, number + 1, _LONG, _TOKENS)
            many = await asyncio.gather(
                *(_timed(session, url, number + 2 + at, _SHORT, _TOKENS) for at in range(SLOTS))
            )
            number += 2 + SLOTS
            mean = Timing(*(statistics.fmean(one[at] for one in many) for at in range(2)))
            rounds.append(Measured(short, long, mean))
    return _middle(rounds)


async def _timed(session: aiohttp.ClientSession, url: str, number: int, prompt: int, output: int) -> Timing:
    began, first = time.monotonic(), None
    data = json.dumps(body(number, prompt, output))
    async with session.post(url, data=data, headers={"content-type": "application/json"}) as answer:
        answer.raise_for_status()
        async for chunk in answer.content.iter_any():
            if first is None and b"data:" in chunk:
                first = time.monotonic()
    if first is None:
        raise RuntimeError("llama.cpp gave no token")
    return Timing(first - began, (time.monotonic() - first) / (output - 1))


def _middle(rounds: Sequence[Measured]) -> Measured:
    kinds = [[one[at] for one in rounds] for at in range(3)]
    return Measured(*(Timing(*(statistics.median(one[part] for one in kind) for part in range(2))) for kind in kinds))


def profile(name: str, measured: Measured) -> Profile:
    """Return the engine as the simulator's model has it.

    A step costs ``d + prefill / rate + n * s + context * c``. The two prompts' lengths give ``rate`` from the times to
    the first token, and ``c`` from the times per token; one and ``SLOTS`` at once give ``s``; ``d`` is what is left.
    Every slot has room of its own for the longest request, so blocks never run out.
    """
    short, long, together = measured
    rate = (_LONG - _SHORT) / max(1e-6, long.ttft - short.ttft)
    context = max(0.0, (long.tpot - short.tpot) / (_LONG - _SHORT))
    held = context * (_SHORT + _TOKENS / 2)  # of each request, on average over its answer
    sequence = max(0.0, (together.tpot - short.tpot) / (SLOTS - 1) - held)
    return Profile(
        name=name,
        prefill_tokens_per_second=rate,
        decode_step_seconds=max(1e-4, short.tpot - sequence - held),
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
