"""Is the simulator right? The same workload live, through Envoy, and under the virtual clock: predicted and observed.

Live, either simulated engines (``tidegate engine``) serve in real time behind Envoy and a control plane, and what is
held against the prediction is everything but the engines' model: the control plane, Envoy, the network, and how late
news is. Or llama.cpp does, one thread for each engine, and the engines' model is held against real ones too. What a
token costs one of them is measured first, and how much of a processor it got is measured in the run. Run it on a
machine that does nothing else: simulated engines that lack CPU are late, and the virtual ones never are.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import psutil

from bench import llamacpp_fleet
from tests.e2e.llamacpp.gguf_model import write_tokenizer
from tests.e2e.stack import MODEL, configuration, engines, up
from tidegate.scheduling import pickers
from tidegate.simulator.profiles import PROFILES, Profile
from tidegate.simulator.virtual import synthetic
from tidegate.simulator.virtual.conditions import Conditions
from tidegate.simulator.virtual.fleet import FleetSpec
from tidegate.simulator.virtual.percentiles import Percentiles
from tidegate.simulator.virtual.simulation import Simulation
from tidegate.simulator.virtual.workload import Arrival, Workload

TOKEN_BYTES = 4  # in a simulated engine
MAX_MODEL_LEN = 32_768
PATIENCE_SECONDS = 300.0
CLEAR = 1.25
"""Two policies are clearly apart when the mean of the one is so many times that of the other."""

_WORDS = "the cat ran out and saw its old dog sit far off one hot day but she did not see him "

Body = Callable[[int, Arrival], Mapping[str, Any]]
"""Returns what is asked for by a request of that number."""


class Observed(NamedTuple):
    """One answer: seconds to its first token, per token after it, and to its last; and who gave it."""

    ttft: float
    tpot: float
    end_to_end: float
    endpoint: str


class Kind(NamedTuple):
    """What ``--engines`` stands for, and what is asked of such engines unless something else is said."""

    fleet: str
    requests: int
    rate: float
    speed: float
    scale: float


KINDS = {
    "simulated": Kind("h100,h100,rtx4090,rtx4090", 200, 6.0, 0.5, 1.0),
    "llamacpp": Kind("small,large", 60, 1.2, 1.0, 0.1),
}


class Run(NamedTuple):
    """What was seen of a workload.

    Attributes:
        answers: one for each request, or why there was none.
        shares: for each engine, which share of the time that it wanted to run it did run.
    """

    answers: Sequence[Observed | str]
    shares: Sequence[float]


class Live(NamedTuple):
    """Engines that run, and what they are to the simulator.

    Attributes:
        profiles: one for each.
        ask: has a workload served under a policy.
    """

    profiles: Sequence[Profile]
    ask: Callable[[Workload, str], Run]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status: 1 where policies that should be clearly apart stand the other way."""
    asked = _asked(arguments)
    names: list[str] = asked.policy or ["round_robin", "least_request", "least_tokens", "predicted_latency"]
    fleet: list[str] = asked.fleet.split(",")
    workload = bounded(synthetic.make(asked.workload, asked.requests, asked.rate, asked.seed), asked.scale)
    print(f"{len(workload.arrivals)} requests, {workload.rate:.1f}/s, {asked.engines} engines: {', '.join(fleet)}")
    order: dict[str, tuple[float, float]] = {}
    serving = simulated_engines(fleet, asked.speed) if asked.engines == "simulated" else llamacpp_engines(fleet)
    with serving as live:
        for name in names:
            psutil.cpu_percent()
            answers, shares = live.ask(workload, name)
            busy = psutil.cpu_percent()
            observed = [one for one in answers if isinstance(one, Observed)]
            predicted = simulated(list(map(slowed, live.profiles, shares)), workload, name, asked.seed)
            print(f"\n{name}: {len(observed)} of {len(answers)} answered live, the machine {busy:.0f} % busy")
            for reason, times in Counter(one for one in answers if isinstance(one, str)).items():
                print(f"  {times} times {reason}")
            if min(shares) < 1:
                had = ", ".join(f"{share:.0%}" for share in shares)
                print(f"  of the time they wanted to run, engines ran {had}; predicted for engines slowed by so much")
            print(*compared(predicted, observed), sep="\n", flush=True)
            order[name] = (mean(predicted), mean(observed))
    verdict, right = agreement(order)
    print("", *verdict, sep="\n")
    return 0 if right else 1


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.validate_simulator", description=__doc__)
    parser.add_argument("--engines", choices=KINDS, default="simulated", help="what serves live")
    shapes = ", ".join(llamacpp_fleet.SHAPES)
    parser.add_argument("--fleet", help=f"a profile for each simulated engine, or a model for each llama.cpp: {shapes}")
    parser.add_argument("--workload", choices=synthetic.names(), default="poisson")
    parser.add_argument("--requests", type=int)
    parser.add_argument("--rate", type=float, help="requests per second")
    parser.add_argument("--speed", type=float, help="of simulated engines, as a share of their profiles'")
    parser.add_argument("--scale", type=float, help="of the workload's prompts and answers: by what to multiply them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", action="append", choices=pickers.names(), help="repeat it for several")
    asked = parser.parse_args(arguments)
    for name, usual in KINDS[asked.engines]._asdict().items():
        if getattr(asked, name) is None:
            setattr(asked, name, usual)
    return asked


def bounded(workload: Workload, scale: float = 1.0) -> Workload:
    """Return the workload as one can ask for it live: no longer than the engines take, the answer's length named."""
    prompts = [max(1, round(min(one.prompt_tokens, 20_000) * scale)) for one in workload.arrivals]
    answers = [max(1, round(min(one.output_tokens, 2_000) * scale)) for one in workload.arrivals]
    return Workload(
        workload.name,
        [
            Arrival(one.at, prompt, answer, max_tokens=answer)
            for one, prompt, answer in zip(workload.arrivals, prompts, answers, strict=True)
        ],
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


def simulated(profiles: Sequence[Profile], workload: Workload, policy: str, seed: int) -> list[Observed]:
    """Return what the simulator predicts, in the order of the arrivals, of those that are answered."""
    spec = FleetSpec(tuple(profiles), MAX_MODEL_LEN)
    late = Conditions(scrape_interval=0.2, scrape_delay=0.01)  # as the stack is configured
    return [
        Observed(one.ttft, one.tpot or 0.0, one.end_to_end, one.endpoint)
        for one in Simulation(spec, workload, policy, seed, late).run().outcomes
        if one.ttft is not None and one.end_to_end is not None
    ]


@contextlib.contextmanager
def simulated_engines(names: Sequence[str], speed: float) -> Iterator[Live]:
    """Serve with engines of these profiles, at ``speed`` times their speed; new ones for every policy."""

    def ask(workload: Workload, policy: str) -> Run:
        with (
            tempfile.TemporaryDirectory(prefix="tidegate-validate-") as folder,
            engines(Path(folder), *names, options=("--speed", str(speed))) as ports,
        ):
            config = configuration(ports, policy)
            for endpoint, name in zip(config["pools"][0]["endpoints"], names, strict=True):
                endpoint["gpu"] = name
            return Run(through(Path(folder), config, workload, simulated_body), [1.0] * len(names))

    yield Live([slowed(PROFILES[name], speed) for name in names], ask)


@contextlib.contextmanager
def llamacpp_engines(names: Sequence[str]) -> Iterator[Live]:
    """Serve with llama.cpp and models of these names, and measure one engine of each first, while all are idle."""
    with tempfile.TemporaryDirectory(prefix="tidegate-validate-") as name, contextlib.ExitStack() as serving:
        folder = Path(name)
        tokenizer = folder / "tokenizer.json"
        write_tokenizer(tokenizer)
        running = serving.enter_context(llamacpp_fleet.fleet(folder, names))

        measured = {
            name: llamacpp_fleet.profile(name, asyncio.run(llamacpp_fleet.calibrate(running[names.index(name)])))
            for name in dict.fromkeys(names)
        }
        print(*map(llamacpp_fleet.told, measured.values()), sep="\n", flush=True)

        def ask(workload: Workload, policy: str) -> Run:
            config = configuration([int(one.address.rpartition(":")[2]) for one in running], policy, "llamacpp")
            config["pools"][0]["tokenizer"] = str(tokenizer)
            place = folder / policy
            place.mkdir()
            before = list(map(llamacpp_fleet.threads, running))
            answers = through(place, config, workload, llamacpp_body)
            return Run(answers, list(map(llamacpp_fleet.share, before, map(llamacpp_fleet.threads, running))))

        yield Live([measured[name] for name in names], ask)


def llamacpp_body(number: int, arrival: Arrival) -> Mapping[str, Any]:
    """Return a request to llama.cpp."""
    return llamacpp_fleet.body(number, arrival.prompt_tokens, arrival.output_tokens)


def through(folder: Path, config: dict[str, Any], workload: Workload, body: Body) -> list[Observed | str]:
    """Return what clients of a real Envoy see, in the order of the arrivals, or why there was no answer."""
    with up(folder, config) as stack:
        return asyncio.run(_ask_all(f"{stack.clients}/completions", workload, body))


async def _ask_all(url: str, workload: Workload, body: Body) -> list[Observed | str]:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as group:
        start = time.monotonic()
        tasks = []
        for number, arrival in enumerate(workload.arrivals):
            await asyncio.sleep(max(0.0, start + arrival.at - time.monotonic()))
            tasks.append(group.create_task(_ask(session, url, body(number, arrival), arrival.output_tokens)))
    return [task.result() for task in tasks]


async def _ask(session: aiohttp.ClientSession, url: str, body: Mapping[str, Any], tokens: int) -> Observed | str:
    began, first = time.monotonic(), None
    try:
        async with session.post(url, data=json.dumps(body), headers={"content-type": "application/json"}) as answer:
            if answer.status != 200:
                return f"{answer.status} {(await answer.text())[:200]}"
            served_by = answer.headers.get("x-served-by", "")
            async for chunk in answer.content.iter_any():
                if first is None and b"data:" in chunk:
                    first = time.monotonic()
    except (aiohttp.ClientError, TimeoutError) as error:
        return repr(error)
    ended = time.monotonic()
    if first is None:
        return "an answer without a token"
    return Observed(first - began, (ended - first) / max(1, tokens - 1), ended - began, served_by)


def simulated_body(number: int, arrival: Arrival) -> Mapping[str, Any]:
    """Return a request to a simulated engine."""
    return {
        "model": MODEL,
        "prompt": prompt(number, arrival.prompt_tokens),
        "max_tokens": arrival.output_tokens,
        "ignore_eos": True,
        "stream": True,
    }


def prompt(number: int, tokens: int) -> str:
    """Return a text of so many of a simulated engine's tokens, that no other request begins with."""
    return (f"{number:<15d} " + _WORDS * (tokens * TOKEN_BYTES // len(_WORDS) + 1))[: tokens * TOKEN_BYTES]


def compared(predicted: Sequence[Observed], observed: Sequence[Observed]) -> Iterator[str]:
    """Say, line by line, what was predicted, what was observed, and how far the one is from the other."""
    for title, field in (("TTFT", "ttft"), ("TPOT", "tpot"), ("all", "end_to_end")):
        ours, theirs = (Percentiles.of([getattr(one, field) for one in side]) for side in (predicted, observed))
        for name in ("mean", "p50", "p90", "p99"):
            said, seen = getattr(ours, name), getattr(theirs, name)
            if said is not None and seen:
                figures = (
                    f"predicted {said * 1e3:9.1f} ms  observed {seen * 1e3:9.1f} ms  error {said / seen - 1:+5.0%}"
                )
                yield f"  {title:5}{name:5} {figures}"


def agreement(order: Mapping[str, tuple[float, float]], clear: float = CLEAR) -> tuple[list[str], bool]:
    """Hold against each other how the policies stand, by their mean times to the last token, predicted and observed.

    Args:
        order: the two means of each policy.
        clear: how many times the other one's mean a policy's must be for the two to be clearly apart.

    Returns:
        The lines that say so, and whether every two that are predicted to be clearly apart stand the same way live.
    """
    lines = [
        f"{title} by mean time to the last token: "
        + ", ".join(f"{name} {order[name][at]:.2f} s" for name in sorted(order, key=lambda name: order[name][at]))
        for at, title in enumerate(("predicted", "observed"))
    ]
    ranked = combinations(sorted(order, key=lambda name: order[name][0]), 2)
    apart = [pair for pair in ranked if order[pair[1]][0] >= clear * order[pair[0]][0]]
    wrong = [pair for pair in apart if order[pair[0]][1] >= order[pair[1]][1]]
    same = len(apart) - len(wrong)
    lines.append(f"{same} of {len(apart)} pairs that are predicted to be {clear:g} times apart stand that way live")
    lines += [f"  not so: {better} before {worse}" for better, worse in wrong]
    return lines, not wrong


def mean(side: Sequence[Observed]) -> float:
    """Return the mean time to the last token, in seconds; infinite when nothing was answered."""
    return sum(one.end_to_end for one in side) / len(side) if side else float("inf")


if __name__ == "__main__":
    sys.exit(main())
