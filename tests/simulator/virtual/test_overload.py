"""Five times what a fleet can do, of mixed priorities: what is left of its goodput, and what the urgent notice of it.

The fleets, the workload and what is measured are those of ``bench/queue``, in virtual time: what is found here is what
the decisions are worth, whatever the machine does meanwhile.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from bench.overload import workload
from tidegate.scheduling.line import QueueSettings
from tidegate.scheduling.queue import Bounds
from tidegate.simulator.profiles import PROFILES
from tidegate.simulator.virtual import capacity
from tidegate.simulator.virtual.classes import TURNED_AWAY
from tidegate.simulator.virtual.conditions import Conditions
from tidegate.simulator.virtual.fleet import FleetSpec
from tidegate.simulator.virtual.outcome import Ending, Outcome
from tidegate.simulator.virtual.percentiles import Percentiles
from tidegate.simulator.virtual.simulation import Simulation

SPEED = 0.4
"""Of the engines, as in the benchmark."""

SCALE = 0.15
WARM_UP = 10.0
IN_TIME = 2.0
"""Seconds to the first token of a good answer."""

URGENT, NORMAL, BATCH = 10, 0, -1
CONDITIONS = Conditions(end_delay=0.02)
"""As Envoy gathers the entries of its log."""


def fleet(engines: int, batch: int) -> FleetSpec:
    fast = PROFILES["a100"]
    profile = replace(
        fast,
        max_num_seqs=batch,
        prefill_tokens_per_second=fast.prefill_tokens_per_second * SPEED,
        decode_step_seconds=fast.decode_step_seconds / SPEED,
        sequence_seconds=fast.sequence_seconds / SPEED,
        context_token_seconds=fast.context_token_seconds / SPEED,
    )
    return FleetSpec((profile,) * engines)


@cache
def served(spec: FleetSpec) -> float:
    """Return the requests a second that a fleet can serve, were all its places always taken."""
    return capacity.requests_per_second(spec, workload(2_000, 1.0, SCALE, 1))


def run(spec: FleetSpec, load: float, seconds: float, seed: int, **settings: float) -> list[Outcome]:
    """Return what came of the requests of so many ``seconds`` after the warm-up."""
    rate = load * served(spec)
    waits = {"max_wait_seconds": 1.5, "batch_max_wait_seconds": 10.0, **settings}
    queue = QueueSettings(Bounds(), max_running=spec.profiles[0].max_num_seqs, **waits)  # type: ignore[arg-type]
    asked = workload(round(rate * (WARM_UP + seconds)), rate, SCALE, seed)
    recording = Simulation(spec, asked, "predicted_latency", seed, CONDITIONS, queue=queue).run()
    return [one for one in recording.outcomes if one.arrived >= WARM_UP]


def good(outcomes: Sequence[Outcome]) -> int:
    return sum(one.ending is Ending.ANSWERED and (one.ttft or 0.0) <= IN_TIME for one in outcomes)


def first_token(outcomes: Sequence[Outcome]) -> float:
    """Return the 99th percentile of the urgent ones' time to the first token; all of them have one."""
    urgent = [one for one in outcomes if one.priority == URGENT]
    assert all(one.ending is Ending.ANSWERED for one in urgent)
    found = Percentiles.of([one.ttft for one in urgent if one.ttft is not None]).p99
    assert found is not None
    return found


@pytest.mark.parametrize(("engines", "batch"), [(4, 8), (2, 32)])
def test_overload_costs_little_goodput_and_the_urgent_hardly_notice_it(engines: int, batch: int) -> None:
    spec = fleet(engines, batch)
    calm = run(spec, 0.5, 400.0, 1)
    assert not any(one.waited for one in calm if one.priority == URGENT), "nobody urgent waits there"
    # Nothing is kept free: all places are taken all the time, which is the most that the fleet can do.
    peak = good(run(spec, 5.0, 30.0, 2, kept_share=0.0)) / 30.0
    pressed = [one for seed in (2, 3) for one in run(spec, 5.0, 45.0, seed)]
    goodput = good(pressed) / 90.0
    usual, then = first_token(calm), first_token(pressed)
    print(
        f"{engines} engines of {batch}: goodput {goodput:.1f} of {peak:.1f} a second = {goodput / peak:.0%}, "
        f"urgent requests' TTFT p99 {then:.3f} s, {then / usual:.2f} times {usual:.3f} s"
    )
    assert goodput >= 0.9 * peak
    assert then <= 1.5 * usual


def test_in_a_fleet_of_a_few_places_goodput_comes_first() -> None:
    """Of 16 places two may be kept: nine in ten of the urgent find one, and for the tenth there is none to spare."""
    spec = fleet(2, 8)
    everything, kept = (run(spec, 5.0, 60.0, 2, kept_share=share) for share in (0.0, 0.15))
    assert good(kept) >= 0.9 * good(everything)
    before, now = (
        Percentiles.of([one.waited or 0.0 for one in outcomes if one.priority == URGENT])
        for outcomes in (everything, kept)
    )
    assert before.p50 == pytest.approx(0.07, abs=0.04)
    assert now.p50 == 0.0
    assert before.mean is not None
    assert now.mean is not None
    assert now.mean < before.mean / 2


def errors(outcomes: Sequence[Outcome], priority: int) -> tuple[Percentiles, Percentiles]:
    """Return how long those waited that went, and how far off their estimates were, as a share of that or a second."""
    last = outcomes[-1].arrived
    pairs = [
        (one.waited, one.estimate)
        for one in outcomes
        if one.priority == priority
        and one.ending not in TURNED_AWAY
        and one.waited is not None
        and one.estimate is not None
        # What still waits when nobody comes any more is served sooner than anybody could know.
        and one.arrived + one.waited <= last
    ]
    waited = Percentiles.of([true for true, _ in pairs])
    return waited, Percentiles.of([abs(said - true) / max(1.0, true) for true, said in pairs])


@pytest.mark.parametrize("load", [1.3, 2.0])
def test_waits_are_foretold_although_the_more_important_overtake(load: float) -> None:
    outcomes = run(fleet(4, 8), load, 150.0, 2, max_wait_seconds=20.0, batch_max_wait_seconds=100.0)
    for priority in (URGENT, NORMAL, BATCH):
        waited, error = errors(outcomes, priority)
        if waited.p50 is None:
            assert (priority, load) == (BATCH, 2.0), "nothing is left to batch work"
            continue
        assert error.p50 is not None
        assert error.p90 is not None
        print(f"{load} times, priority {priority}: waited {waited.p50:.2f} s, off by {error.p50:.0%}, {error.p90:.0%}")
        assert error.p50 <= 0.25
        assert math.isfinite(error.p90)
