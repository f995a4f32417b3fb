"""Workloads drawn at random, for what no trace shows clearly: bursts, long tails, shared prefixes, sessions.

Lengths are lognormal about the means of Azure's 2023 conversation trace (1,155 tokens of prompt, 211 of answer), unless
a workload says otherwise. Keys of blocks are unique numbers, not hashes: only their being equal matters.
"""

import math
from collections.abc import Callable, Mapping
from random import Random

from tidegate.simulator.profiles import BLOCK_SIZE
from tidegate.simulator.virtual.workload import Arrival, Workload

PROMPT_TOKENS = 1_155.0
OUTPUT_TOKENS = 211.0
_SPREAD = 0.9
"""Standard deviation of the logarithm of a length."""
_LONGEST = 100_000


def names() -> tuple[str, ...]:
    """Return the names of the synthetic workloads."""
    return tuple(_KINDS)


def make(name: str, requests: int, rate: float, seed: int) -> Workload:
    """Draw a workload.

    Args:
        name: one of ``names()``.
        requests: how many; 1 or more.
        rate: mean requests per second.
        seed: where the draws start.

    Raises:
        KeyError: there is no such workload.
        ValueError: ``requests`` or ``rate`` is not positive.
    """
    if requests < 1 or rate <= 0:
        raise ValueError("a workload needs a request and a positive rate")
    rng = Random(seed)  # noqa: S311 - nothing here is secret
    arrivals = sorted(_KINDS[name](rng, requests, rate), key=lambda one: one.at)
    return Workload(name, arrivals).at_rate(rate)


def _length(rng: Random, mean: float) -> int:
    drawn = mean * math.exp(rng.gauss(0.0, _SPREAD) - _SPREAD**2 / 2)
    return min(max(round(drawn), 1), _LONGEST)


def _poisson(rng: Random, requests: int, rate: float) -> list[Arrival]:
    """Independent arrivals."""
    now, arrivals = 0.0, list[Arrival]()
    for _ in range(requests):
        now += rng.expovariate(rate)
        arrivals.append(Arrival(now, _length(rng, PROMPT_TOKENS), _length(rng, OUTPUT_TOKENS)))
    return arrivals


def _bursts(rng: Random, requests: int, rate: float, mean_size: int = 20) -> list[Arrival]:
    """Bursts of 20 on average, each within 50 ms: many come between two scrapes."""
    now, arrivals = 0.0, list[Arrival]()
    while len(arrivals) < requests:
        now += rng.expovariate(rate / mean_size)
        for _ in range(min(1 + int(rng.expovariate(1 / (mean_size - 1))), requests - len(arrivals))):
            prompt, answer = _length(rng, PROMPT_TOKENS), _length(rng, OUTPUT_TOKENS)
            arrivals.append(Arrival(now + rng.random() * 0.05, prompt, answer))
    return arrivals


def _long_tail(rng: Random, requests: int, rate: float, share: float = 0.03) -> list[Arrival]:
    """Small prompts, and three in a hundred of 8,000 to 100,000 tokens (Pareto, exponent 1)."""
    now, arrivals = 0.0, list[Arrival]()
    for _ in range(requests):
        now += rng.expovariate(rate)
        is_long = rng.random() < share
        prompt = min(round(8_000 / (1.0 - rng.random())), _LONGEST) if is_long else _length(rng, 500)
        arrivals.append(Arrival(now, prompt, _length(rng, OUTPUT_TOKENS)))
    return arrivals


def _documents(rng: Random, requests: int, rate: float, share: float = 0.01) -> list[Arrival]:
    """Small prompts, and one in a hundred of 50,000 to 100,000 tokens."""
    now, arrivals = 0.0, list[Arrival]()
    for _ in range(requests):
        now += rng.expovariate(rate)
        is_long = rng.random() < share
        prompt = rng.randrange(50_000, _LONGEST) if is_long else _length(rng, 500)
        arrivals.append(Arrival(now, prompt, _length(rng, OUTPUT_TOKENS)))
    return arrivals


def _shared_prefixes(rng: Random, requests: int, rate: float, prefixes: int = 40) -> list[Arrival]:
    """Forty system prompts of 1,000 to 6,000 tokens, the popular ones more often (Zipf), each with its own question."""
    lengths = [rng.randrange(1_000, 6_000) for _ in range(prefixes)]
    weights = [1 / (rank + 1) for rank in range(prefixes)]
    now, arrivals = 0.0, list[Arrival]()
    for number in range(requests):
        now += rng.expovariate(rate)
        (chosen,) = rng.choices(range(prefixes), weights)
        own = _length(rng, 200)
        shared = lengths[chosen] // BLOCK_SIZE
        prompt = lengths[chosen] + own
        blocks = _keys(chosen, 0, shared) + _keys(prefixes + number, shared, prompt // BLOCK_SIZE)
        arrivals.append(Arrival(now, prompt, _length(rng, OUTPUT_TOKENS), blocks, BLOCK_SIZE))
    return arrivals


def _sessions(rng: Random, requests: int, rate: float, mean_turns: float = 5.0, pause: float = 15.0) -> list[Arrival]:
    """Conversations of five turns on average: each prompt holds all before it, answers included."""
    now, arrivals, session = 0.0, list[Arrival](), 0
    while len(arrivals) < requests:
        now += rng.expovariate(rate / mean_turns)
        session += 1
        at, tokens = now, 300
        while len(arrivals) < requests:
            prompt, answer = tokens + _length(rng, 300), _length(rng, OUTPUT_TOKENS)
            if prompt + answer > _LONGEST:
                break
            blocks = _keys(session, 0, (prompt + answer) // BLOCK_SIZE)
            arrivals.append(Arrival(at, prompt, answer, blocks, BLOCK_SIZE, f"session-{session}"))
            tokens = prompt + answer
            at += answer * 0.03 + rng.expovariate(1 / pause)
            if rng.random() < 1 / mean_turns:
                break
    return arrivals


def _classes(rng: Random, requests: int, rate: float) -> list[Arrival]:
    """One in ten urgent, five normal, four batch work; of four tenants, of which one asks for as much as the others."""
    tenants, priorities = ("a", "b", "c", "greedy"), (10, 0, -1)
    now, arrivals = 0.0, list[Arrival]()
    for _ in range(requests):
        now += rng.expovariate(rate)
        (tenant,), (priority,) = rng.choices(tenants, (1, 1, 1, 3)), rng.choices(priorities, (1, 5, 4))
        prompt, answer = _length(rng, PROMPT_TOKENS), _length(rng, OUTPUT_TOKENS)
        arrivals.append(Arrival(now, prompt, answer, tenant=tenant, priority=priority))
    return arrivals


def _keys(text: int, first: int, last: int) -> tuple[int, ...]:
    """Return keys of the blocks ``first`` to ``last`` of text number ``text``."""
    return tuple((text << 20) + at for at in range(first, last))


_KINDS: Mapping[str, Callable[[Random, int, float], list[Arrival]]] = {
    "poisson": _poisson,
    "bursts": _bursts,
    "long-tail": _long_tail,
    "documents": _documents,
    "shared-prefixes": _shared_prefixes,
    "sessions": _sessions,
    "classes": _classes,
}
