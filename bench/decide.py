"""What a decision costs: CPU time of ``Dispatcher.decide`` by policy and by the number of endpoints.

Every endpoint has reported its load within the last second, prompts share beginnings, and each request ends when
``INFLIGHT`` for each endpoint are there. The time is that of the process, for the decision alone with its reservation;
what ends and reports is not counted. Run from the repository's root: ``python -m bench.decide``.
"""

import argparse
import itertools
import math
import random
import statistics
import time
from collections import deque
from collections.abc import Iterator

from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import LoadReported, PoolsDeclared, RequestEnded
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.scheduling import pickers
from tidegate.scheduling.dispatch import Decision, Dispatcher
from tidegate.scheduling.policy import Policy
from tidegate.scheduling.request import InferenceRequest
from tidegate.tokens.count import CountSource, TokenCount

SIZES = (10, 100, 1_000, 10_000)
BOUNDS_US = {10: 40.0, 100: 100.0, 1_000: 300.0, 10_000: 1_000.0}
"""What a decision may take, in microseconds of CPU."""

INFLIGHT = 4
"""Requests in flight for each endpoint, but no more than ``MOST_INFLIGHT`` together."""

MOST_INFLIGHT = 4_000

PER_SECOND = 1_000.0
"""Decisions a second, on the clock of the fleet: about what one process of the control plane takes."""
CONVERSATIONS = 500
BLOCKS = 24
"""Blocks of a prompt, of 128 tokens each; the first eight are one of a few system prompts."""


def requests(rng: random.Random) -> Iterator[InferenceRequest]:
    """Return requests of many conversations over few system prompts, without an end."""
    heads = [[rng.getrandbits(64) for _ in range(8)] for _ in range(10)]
    asked = []
    for number in range(CONVERSATIONS):
        prefix = (*heads[number % len(heads)], *(rng.getrandbits(64) for _ in range(BLOCKS - 8)))
        prompt = TokenCount(BLOCKS * 128 + rng.randrange(128), CountSource.EXACT)
        asked.append(
            InferenceRequest(
                *("", "chat_completions", "m", prompt), prefix=prefix, block_tokens=128, session=str(number)
            )
        )
    return itertools.cycle(asked)


def report(rng: random.Random) -> EngineReport:
    """Return what an engine with something to do says."""
    return EngineReport(float(rng.randrange(64)), float(rng.randrange(4)), rng.random() * 0.8, 450_000.0)


def measure(policy: str, size: int, decisions: int) -> list[float]:
    """Return the CPU seconds of each decision."""
    rng = random.Random(1)
    addresses = [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:8000" for number in range(size)]
    declared = PoolsDeclared((PoolSpec("default", "vllm", ("*",), tuple(map(EndpointSpec, addresses))),))
    fleet = Fleet(lease_seconds=45.0, stale_after=math.inf)
    fleet.apply(declared, 0.0)
    dispatcher = Dispatcher(fleet, rng)
    dispatcher.configure(declared, {"default": Policy(policy)})
    for address in addresses:
        fleet.apply(LoadReported(address, report(rng)), 0.0)
    inflight: deque[str] = deque()
    took = []
    asked = requests(rng)
    for number in range(decisions):
        template = next(asked)
        request = InferenceRequest(
            *(str(number), template.api, template.model, template.prompt),
            prefix=template.prefix,
            block_tokens=template.block_tokens,
            session=template.session,
        )
        now = number / PER_SECOND
        began = time.process_time()
        decision = dispatcher.decide(request, now)
        took.append(time.process_time() - began)
        if not isinstance(decision, Decision):
            raise TypeError(decision)
        inflight.append(decision.reservation.id)
        if len(inflight) > min(size * INFLIGHT, MOST_INFLIGHT):
            fleet.apply(RequestEnded(inflight.popleft()), now)
        if number % 10 == 0:
            fleet.apply(LoadReported(rng.choice(addresses), report(rng)), now)
    return took[decisions // 2 :]


def main() -> None:
    """Print a table: microseconds of CPU, median and 99th percentile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=4_000, help="for each cell; the second half is counted")
    parser.add_argument("--policy", action="append", choices=pickers.names(), help="only this one; may be repeated")
    parser.add_argument("--size", action="append", type=int, help="number of endpoints; may be repeated")
    given = parser.parse_args()
    sizes = given.size or SIZES
    print(f"{'policy':<20}" + "".join(f"{f'{size} endpoints':>22}" for size in sizes))
    print(f"{'(at most, µs)':<20}" + "".join(f"{BOUNDS_US.get(size, float('nan')):>22.0f}" for size in sizes))
    for policy in given.policy or pickers.names():
        cells = []
        for size in sizes:
            took = sorted(measure(policy, size, given.decisions))
            cells.append(f"{statistics.median(took) * 1e6:.0f} / {took[len(took) * 99 // 100] * 1e6:.0f}")
        print(f"{policy:<20}" + "".join(f"{cell:>22}" for cell in cells))


if __name__ == "__main__":
    main()
