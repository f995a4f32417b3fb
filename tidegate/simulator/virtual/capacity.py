"""How much a fleet can do, and how large it must be."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidegate.scheduling.line import QueueSettings
from tidegate.simulator.profiles import Profile
from tidegate.simulator.virtual.conditions import Conditions
from tidegate.simulator.virtual.engine import TooLongError, VirtualEngine
from tidegate.simulator.virtual.fleet import FleetSpec
from tidegate.simulator.virtual.job import Job
from tidegate.simulator.virtual.report import SLO, Report, simulate
from tidegate.simulator.virtual.workload import Arrival, Workload

MOST_ENDPOINTS = 1_024
_REQUESTS = 3_000
"""Requests that an engine is filled with: some batches' worth, so that filling and draining it do not matter."""


def requests_per_second(spec: FleetSpec, workload: Workload) -> float:
    """Return how many requests of ``workload`` the fleet ``spec`` can serve a second, were all its engines always full.

    Each engine gets an even share of the requests, as round robin would deal them, so it finds in its cache what such a
    share lets it find. Requests that it cannot hold are left out of its share.
    """
    share = max(1, min(len(spec.profiles), len(workload.arrivals) // 100))
    dealt = workload.arrivals[::share]
    rates = {profile: _engine_rate(profile, spec, dealt) for profile in set(spec.profiles)}
    return sum(rates[profile] for profile in spec.profiles)


def _engine_rate(profile: Profile, spec: FleetSpec, dealt: Sequence[Arrival]) -> float:
    engine = VirtualEngine(profile, spec.max_model_len, _REQUESTS)
    taken, cycle = 0, 0
    while taken < _REQUESTS:
        # The same requests again, with other content: they must not find themselves.
        before = taken
        for one in dealt[: _REQUESTS - taken]:
            blocks = tuple(key ^ (cycle << 64) for key in one.blocks)
            job = Job(one.prompt_tokens, one.output_tokens, blocks, one.block_tokens)
            try:
                engine.submit(job, 0.0)
            except TooLongError:
                continue
            taken += 1
        cycle += 1
        if taken == before:
            return 0.0
    ends: list[float] = []
    while (due := engine.next_event) is not None:
        ends += [due] * len(engine.advance(due))
    first, last = round(0.2 * len(ends)), round(0.8 * len(ends))
    return (last - first) / (ends[last] - ends[first])


def at_utilisation(spec: FleetSpec, workload: Workload, utilisation: float) -> Workload:
    """Return ``workload``, stretched or pressed in time to a share of what ``spec`` can serve.

    Raises:
        ValueError: no engine of ``spec`` can serve any request, or ``utilisation`` is not positive.
    """
    rate = requests_per_second(spec, workload)
    if not rate:
        raise ValueError(f"no engine of {spec} can hold any request of {workload.name}")
    return workload.at_rate(utilisation * rate)


def endpoints_needed(
    spec: FleetSpec,
    workload: Workload,
    policy: str,
    *,
    slo: SLO,
    target: float = 0.99,
    seed: int = 0,
    conditions: Conditions | None = None,
    most: int = MOST_ENDPOINTS,
    queue: QueueSettings | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> tuple[int, Report] | None:
    """Return the smallest fleet with which a share of ``target`` of the requests meets ``slo``, and how it does.

    Its endpoints have the profiles of ``spec`` in their shares. The search doubles, then bisects: it takes for granted
    that more endpoints are no worse. ``None`` when ``most`` endpoints are not enough.

    Args:
        spec: which profiles, in which shares.
        workload: the requests, at their own rate.
        policy: see ``simulate``, as ``seed`` and ``conditions``; faults of endpoints that are not there are left out.
        slo: what a good answer is.
        target: share of good answers, 0 to 1.
        seed: where the random draws start.
        conditions: how late news is, and what goes wrong.
        most: the largest fleet to try.
        queue: how requests wait that find no room.
        progress: is told each size tried, and the share of good answers there.
    """
    given = conditions or Conditions()

    def tried(count: int) -> Report:
        faults = tuple(fault for fault in given.faults if fault.endpoint < count)
        report = simulate(spec.resized(count), workload, policy, seed, replace(given, faults=faults), slo, queue=queue)
        if progress is not None:
            progress(count, report.goodput)
        return report

    low, high = 0, 1
    while (best := tried(high)).goodput < target:
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        report = tried(middle)
        if report.goodput >= target:
            high, best = middle, report
        else:
            low = middle
    return high, best
