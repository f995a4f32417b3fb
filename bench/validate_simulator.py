"""Is the simulator right? The same workload live, through Envoy, and under the virtual clock: predicted and observed.

Live, simulated engines (``tidegate engine``) serve in real time behind Envoy and a control plane; what is held against
the prediction is thus everything but the engines' model: the control plane, Envoy, the network, and how late news is.
Run it on a machine that does nothing else: live engines that lack CPU are late, and the virtual ones never are.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.e2e.stack import MODEL, configuration, engines, up
from tidegate.scheduling import pickers
from tidegate.simulator.profiles import PROFILES, Profile
from tidegate.simulator.virtual import synthetic
from tidegate.simulator.virtual.conditions import Conditions
from tidegate.simulator.virtual.fleet import FleetSpec
from tidegate.simulator.virtual.report import Percentiles
from tidegate.simulator.virtual.simulation import Simulation
from tidegate.simulator.virtual.workload import Arrival, Workload

TOKEN_BYTES = 4  # in a simulated engine
MAX_MODEL_LEN = 32_768
PATIENCE_SECONDS = 300.0
_WORDS = "the cat ran out and saw its old dog sit far off one hot day but she did not see him "


class Observed(NamedTuple):
    """One answer: seconds to its first token, per token after it, and to its last; and who gave it."""

    ttft: float
    tpot: float
    end_to_end: float
    endpoint: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.validate_simulator", description=__doc__)
    parser.add_argument("--profiles", default="h100,h100,rtx4090,rtx4090", help="one engine for each")
    parser.add_argument("--workload", choices=synthetic.names(), default="poisson")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--rate", type=float, default=6.0, help="requests per second")
    parser.add_argument("--speed", type=float, default=0.5, help="of the engines, as a share of their profiles'")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", action="append", choices=pickers.names(), help="repeat it for several")
    asked = parser.parse_args(arguments)
    names: list[str] = asked.policy or ["round_robin", "least_request", "least_tokens", "predicted_latency"]
    profiles: list[str] = asked.profiles.split(",")
    workload = bounded(synthetic.make(asked.workload, asked.requests, asked.rate, asked.seed))
    print(f"{len(workload.arrivals)} requests, {workload.rate:.1f}/s, {profiles} at {asked.speed:g} of their speed")
    order: dict[str, tuple[float, float]] = {}
    for name in names:
        predicted = simulated(profiles, workload, name, asked.speed, asked.seed)
        observed = live(profiles, workload, name, asked.speed)
        print(
            f"\n{name}: {len(observed)} of {len(workload.arrivals)} answered live",
            *compared(predicted, observed),
            sep="\n",
        )
        order[name] = (_mean(predicted), _mean(observed))
    print("\norder by mean time to the last token, predicted:", *sorted(order, key=lambda name: order[name][0]))
    print("                                          observed:", *sorted(order, key=lambda name: order[name][1]))
    return 0


def bounded(workload: Workload) -> Workload:
    """Return the workload as one can ask for it live: no longer than the engines take, the answer's length named."""
    arrivals = [
        replace(one, prompt_tokens=min(one.prompt_tokens, 20_000), output_tokens=min(one.output_tokens, 2_000))
        for one in workload.arrivals
    ]
    return Workload(
        workload.name,
        [Arrival(one.at, one.prompt_tokens, one.output_tokens, max_tokens=one.output_tokens) for one in arrivals],
    )


def slowed(profile: Profile, speed: float) -> Profile:
    """Return ``profile`` at ``speed`` times its speed."""
    return replace(
        profile,
        prefill_tokens_per_second=profile.prefill_tokens_per_second * speed,
        decode_step_seconds=profile.decode_step_seconds / speed,
        sequence_seconds=profile.sequence_seconds / speed,
        context_token_seconds=profile.context_token_seconds / speed,
    )


def simulated(profiles: Sequence[str], workload: Workload, policy: str, speed: float, seed: int) -> list[Observed]:
    """Return what the simulator predicts, in the order of the arrivals, of those that are answered."""
    spec = FleetSpec(tuple(slowed(PROFILES[name], speed) for name in profiles), MAX_MODEL_LEN)
    late = Conditions(scrape_interval=0.2, scrape_delay=0.01)  # as the stack is configured
    return [
        Observed(one.ttft, one.tpot or 0.0, one.end_to_end, one.endpoint)
        for one in Simulation(spec, workload, policy, seed, late).run().outcomes
        if one.ttft is not None and one.end_to_end is not None
    ]


def live(profiles: Sequence[str], workload: Workload, policy: str, speed: float) -> list[Observed]:
    """Return what clients of a real Envoy see, in the order of the arrivals, of those that are answered."""
    with tempfile.TemporaryDirectory(prefix="tidegate-validate-") as folder:
        place = Path(folder)
        with engines(place, *profiles, options=("--speed", str(speed))) as ports:
            config = configuration(ports, policy)
            for endpoint, name in zip(config["pools"][0]["endpoints"], profiles, strict=True):
                endpoint["gpu"] = name
            with up(place, config) as stack:
                answers = asyncio.run(_ask_all(f"{stack.clients}/completions", workload))
    return [one for one in answers if one is not None]


async def _ask_all(url: str, workload: Workload) -> list[Observed | None]:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as group:
        start = time.monotonic()
        tasks = []
        for number, arrival in enumerate(workload.arrivals):
            await asyncio.sleep(max(0.0, start + arrival.at - time.monotonic()))
            tasks.append(group.create_task(_ask(session, url, number, arrival)))
    return [task.result() for task in tasks]


async def _ask(session: aiohttp.ClientSession, url: str, number: int, arrival: Arrival) -> Observed | None:
    body: dict[str, Any] = {
        "model": MODEL,
        "prompt": prompt(number, arrival.prompt_tokens),
        "max_tokens": arrival.output_tokens,
        "ignore_eos": True,
        "stream": True,
    }
    began, first = time.monotonic(), None
    try:
        async with session.post(url, data=json.dumps(body), headers={"content-type": "application/json"}) as answer:
            if answer.status != 200:
                return None
            served_by = answer.headers.get("x-served-by", "")
            async for chunk in answer.content.iter_any():
                if first is None and b"data:" in chunk:
                    first = time.monotonic()
    except (aiohttp.ClientError, TimeoutError):
        return None
    ended = time.monotonic()
    if first is None:
        return None
    return Observed(first - began, (ended - first) / max(1, arrival.output_tokens - 1), ended - began, served_by)


def prompt(number: int, tokens: int) -> str:
    """Return a text of so many of the engine's tokens, that no other request begins with."""
    return (f"{number:<15d} " + _WORDS * (tokens * TOKEN_BYTES // len(_WORDS) + 1))[: tokens * TOKEN_BYTES]


def compared(predicted: Sequence[Observed], observed: Sequence[Observed]) -> Iterator[str]:
    """Say, line by line, what was predicted, what was observed, and the one over the other."""
    for title, field in (("TTFT", "ttft"), ("TPOT", "tpot"), ("all", "end_to_end")):
        ours, theirs = (Percentiles.of([getattr(one, field) for one in side]) for side in (predicted, observed))
        for name in ("mean", "p50", "p90", "p99"):
            said, seen = getattr(ours, name), getattr(theirs, name)
            if said is not None and seen:
                figures = f"predicted {said * 1e3:9.1f} ms  observed {seen * 1e3:9.1f} ms  {said / seen:5.2f}"
                yield f"  {title:5}{name:5} {figures}"


def _mean(side: Sequence[Observed]) -> float:
    return sum(one.end_to_end for one in side) / len(side) if side else float("inf")


if __name__ == "__main__":
    sys.exit(main())
