"""From a recording to its figures."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidegate.scheduling.line import QueueSettings
from tidegate.simulator.virtual.classes import ClassReport, Waits, by_class, waits
from tidegate.simulator.virtual.conditions import Conditions
from tidegate.simulator.virtual.fleet import FleetSpec
from tidegate.simulator.virtual.outcome import Ending, Outcome, Recording
from tidegate.simulator.virtual.percentiles import Percentiles
from tidegate.simulator.virtual.simulation import Simulation
from tidegate.simulator.virtual.workload import Workload


@dataclass(frozen=True, slots=True)
class SLO:
    """What a good answer is.

    Attributes:
        ttft: seconds to the first token at most.
        tpot: seconds per token after it at most.
    """

    ttft: float = 2.0
    tpot: float = 0.1

    def met_by(self, outcome: Outcome) -> bool:
        """Return whether the request was answered, and in time."""
        ttft, tpot = outcome.ttft, outcome.tpot
        return outcome.ending is Ending.ANSWERED and ttft is not None and ttft <= self.ttft and (tpot or 0) <= self.tpot


@dataclass(frozen=True, slots=True)
class Report:
    """How one policy did.

    Attributes:
        policy: its name.
        seed: where the random draws started.
        fleet: the endpoints, as ``FleetSpec.parse`` reads them.
        workload: its name.
        requests: how many counted: those that arrived in the warm-up do not.
        seconds: from the first of them to the end of the run.
        endings: how many of them ended how, by the names of ``Ending``.
        ttft: time to the first token, from the arrival; seconds, of those that were answered, as the next two.
        tpot: time per token after the first.
        end_to_end: time to the last token.
        goodput: share of all that met the SLO.
        goodput_per_second: how many met it a second.
        kv_usage: mean share of KV cache in use, over time and endpoints.
        kv_usage_peak: the highest of one endpoint.
        imbalance: coefficient of variation of the endpoints' KV use at one moment, averaged over time.
        cache_hit_rate: share of prompt tokens that were found in the engines' caches.
        preemptions: how often a request lost its blocks.
        slo: the SLO.
        classes: the same by priority, the most urgent first.
        waits: what waiting in the queue was like; ``None`` where nothing did.
    """

    policy: str
    seed: int
    fleet: str
    workload: str
    requests: int
    seconds: float
    endings: dict[str, int]
    ttft: Percentiles
    tpot: Percentiles
    end_to_end: Percentiles
    goodput: float
    goodput_per_second: float
    kv_usage: float
    kv_usage_peak: float
    imbalance: float
    cache_hit_rate: float
    preemptions: int
    slo: SLO
    classes: tuple[ClassReport, ...]
    waits: Waits | None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)


def simulate(
    spec: FleetSpec,
    workload: Workload,
    policy: str,
    seed: int = 0,
    conditions: Conditions | None = None,
    slo: SLO | None = None,
    warmup: float = 0.0,
    queue: QueueSettings | None = None,
) -> Report:
    """Run ``workload`` over the fleet ``spec`` by ``policy``, and return how it did.

    Args:
        spec: the endpoints.
        workload: the requests.
        policy: a name from ``simulation.policies()``.
        seed: where all random draws start: the same seed brings the same report.
        conditions: how late news is, and what goes wrong.
        slo: what a good answer is.
        warmup: share of the requests (0 to 1), from the first, that do not count.
        queue: how requests wait that find no room.

    Raises:
        KeyError: there is no such policy.
        ValueError: ``conditions`` do not fit ``spec``, or ``warmup`` leaves nothing.
    """
    recording = Simulation(spec, workload, policy, seed, conditions, queue=queue).run()
    return summarise(recording, spec, workload, policy, seed, slo or SLO(), warmup)


def summarise(
    recording: Recording, spec: FleetSpec, workload: Workload, policy: str, seed: int, slo: SLO, warmup: float = 0.0
) -> Report:
    """Return the figures of ``recording``; see ``simulate`` for the rest.

    Raises:
        ValueError: ``warmup`` leaves nothing.
    """
    counted = recording.outcomes[round(warmup * len(recording.outcomes)) :]
    if not counted:
        raise ValueError("the warm-up leaves no request to count")
    begin = counted[0].arrived
    seconds = recording.seconds - begin
    answered = [one for one in counted if one.ending is Ending.ANSWERED]
    good = sum(map(slo.met_by, counted))
    usages = [sample.kv_usage for sample in recording.samples if sample.at >= begin and sample.kv_usage]
    prompt_tokens = sum(one.prompt_tokens for one in answered)
    return Report(
        policy=policy,
        seed=seed,
        fleet=str(spec),
        workload=workload.name,
        requests=len(counted),
        seconds=seconds,
        endings={ending.value: sum(one.ending is ending for one in counted) for ending in Ending},
        ttft=Percentiles.of([one.ttft for one in answered if one.ttft is not None]),
        tpot=Percentiles.of([one.tpot for one in answered if one.tpot is not None]),
        end_to_end=Percentiles.of([one.end_to_end for one in answered if one.end_to_end is not None]),
        goodput=good / len(counted),
        goodput_per_second=good / seconds if seconds else 0.0,
        kv_usage=_mean([_mean(usage) for usage in usages]),
        kv_usage_peak=max((max(usage) for usage in usages), default=0.0),
        imbalance=_mean([_variation(usage) for usage in usages if max(usage) > 0]),
        cache_hit_rate=sum(one.cached_tokens for one in answered) / prompt_tokens if prompt_tokens else 0.0,
        preemptions=sum(one.preemptions for one in counted),
        slo=slo,
        classes=by_class(counted, slo.met_by),
        waits=waits(counted) if any(one.waited is not None for one in counted) else None,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _variation(values: Sequence[float]) -> float:
    """Return the standard deviation over the mean, which must not be 0."""
    mean = _mean(values)
    return math.sqrt(_mean([(value - mean) ** 2 for value in values])) / mean
