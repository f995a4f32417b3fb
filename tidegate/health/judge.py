"""What a node's report says of an endpoint that runs there. Pure.

A GPU's condition counts only with a reason of the same weight: one that cannot say why it failed is unknown. An
endpoint is judged by its own GPUs alone; where nobody said which these are, by all of its node, and where several
endpoints share those, one GPU that failed casts doubt on each of them and condemns none.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tidegate.fleet.evidence import Evidence, Verdict
from tidegate.fleet.vram import GpuMemory
from tidegate.health.places import Place, listening, port_of
from tidegate.health.registry import patience
from tidegate.health.reported import Answer, Condition, Driver, Engine, EngineAnswer, Gpu, Report

SOURCE: Final = "agent"

OTHER: Final = "other"
"""The reason for every code that an agent of ours would not give."""

MAX_XID = 255
MAX_REASONS = 8
MAX_DETAIL = 300

CODES: Final = frozenset(
    {
        *("gpu_lost", "reset_required", "nvml_hung", "no_readings", "row_remap_failed", "row_remap_pending"),
        *("page_retirement_pending", "ecc_uncorrected", "ecc_corrected", "temperature"),
        *("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake"),
        *("nvlink_down", "nvlink_errors", "pcie_width", "pcie_replays"),
        *(f"xid_{number}" for number in range(MAX_XID + 1)),
    }
)
"""What agents give as reasons. They become labels of metrics, so that there must not be any number of them."""

_WEIGHT: Final = {Verdict.SOUND: 0, Verdict.UNKNOWN: 1, Verdict.IMPAIRED: 2, Verdict.FAILED: 3}
_VERDICTS: Final = {
    Condition.HEALTHY: Verdict.SOUND,
    Condition.UNKNOWN: Verdict.UNKNOWN,
    Condition.DEGRADED: Verdict.IMPAIRED,
    Condition.FAILED: Verdict.FAILED,
}
_ENGINES: Final = {
    EngineAnswer.REFUSES: "engine_refuses",
    EngineAnswer.SILENT: "engine_silent",
    EngineAnswer.BAD_STATUS: "engine_bad_status",
}


class Opinion(NamedTuple):
    """A verdict with its reasons, and a few words on each."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def evidence(report: Report, place: Place, *, unreachable: bool = False) -> Evidence:
    """Return what ``report`` says of the endpoint at ``place``, which is ``unreachable`` for us."""
    opinions = (_of_gpus(report, place), _of_engine(report, place, unreachable=unreachable))
    verdict = max((one.verdict for one in opinions), key=_WEIGHT.__getitem__)
    reasons = dict.fromkeys(reason for one in sorted(opinions, key=_heaviest_first) for reason in one.reasons)
    words = "; ".join(word for one in opinions for word in one.words)
    return Evidence(SOURCE, verdict, tuple(reasons)[:MAX_REASONS], words[:MAX_DETAIL], patience(report))


def _heaviest_first(opinion: Opinion) -> int:
    return -_WEIGHT[opinion.verdict]


def folded(code: str) -> str:
    """Return the reason ``code`` if it is one of ours."""
    return code if code in CODES else OTHER


def judged(gpu: Gpu) -> Opinion:
    """Return what to think of ``gpu``."""
    name = f"GPU {gpu.ordinal}"
    verdict = _VERDICTS[gpu.condition]
    heavy = [reason for reason in gpu.reasons if _VERDICTS[reason.condition] is verdict]
    worst = max((_WEIGHT[_VERDICTS[reason.condition]] for reason in gpu.reasons), default=0)
    if worst > _WEIGHT[verdict] or (verdict in {Verdict.IMPAIRED, Verdict.FAILED} and not heavy):
        return Opinion(Verdict.UNKNOWN, ("unexplained",), (f"{name} is {gpu.condition.value} for no reason",))
    if verdict is Verdict.UNKNOWN and not gpu.reasons:
        return Opinion(verdict, ("no_readings",), (f"{name} says nothing",))
    reasons = tuple(dict.fromkeys(folded(reason.code) for reason in [*heavy, *gpu.reasons]))
    words = tuple(f"{name}: {reason.detail or reason.code} for {reason.since_seconds:.0f} s" for reason in gpu.reasons)
    return Opinion(verdict, reasons, words)


def _of_gpus(report: Report, place: Place) -> Opinion:
    own, missing = _own(report, place)
    if not own:
        driver = report.driver
        if missing:
            reason, words = "gpu_not_reported", f"{missing} GPUs are not reported"
        elif driver in {Driver.USABLE, Driver.UNKNOWN}:
            reason, words = "no_gpus", "there are no GPUs"
        else:
            reason, words = f"driver_{driver.value}", f"the driver: {driver.value.replace('_', ' ')}"
        return Opinion(Verdict.UNKNOWN, (reason,), (words,))
    opinions = [judged(gpu) for gpu in own]
    if missing:
        opinions.append(Opinion(Verdict.UNKNOWN, ("gpu_not_reported",), (f"{missing} GPUs are not reported",)))
    opinions.sort(key=_heaviest_first)
    worst = opinions[0].verdict
    shared = not place.gpus and not place.alone
    if worst is Verdict.FAILED and shared and any(one.verdict is not Verdict.FAILED for one in opinions):
        worst = Verdict.IMPAIRED
    reasons = dict.fromkeys(reason for one in opinions for reason in one.reasons)
    return Opinion(worst, tuple(reasons), tuple(word for one in opinions for word in one.words))


def _own(report: Report, place: Place) -> tuple[Sequence[Gpu], int]:
    """Return the GPUs that the endpoint runs on, and how many of them are not reported."""
    if not place.gpus:
        return report.gpus, 0
    wanted = set(place.gpus)
    own = [gpu for gpu in report.gpus if wanted & {gpu.uuid, *(part.uuid for part in gpu.mig_instances)}]
    found = {uuid for gpu in own for uuid in (gpu.uuid, *(part.uuid for part in gpu.mig_instances))}
    return own, len(wanted - found)


def _of_engine(report: Report, place: Place, *, unreachable: bool) -> Opinion:
    engine = _engine(report, place)
    if engine is None or engine.age_seconds is None or engine.age_seconds > patience(report):
        return Opinion(Verdict.SOUND)
    if engine.answer is EngineAnswer.ANSWERS and unreachable:
        said = "the engine answers on its node, and cannot be reached from here"
        return Opinion(Verdict.IMPAIRED, ("answers_only_locally",), (said,))
    if reason := _ENGINES.get(engine.answer):
        status = f" {engine.http_status}" if engine.http_status else ""
        return Opinion(Verdict.IMPAIRED, (reason,), (f"on its node the {reason.replace('_', ' ')}{status}",))
    return Opinion(Verdict.SOUND)


def _engine(report: Report, place: Place) -> Engine | None:
    """Return the endpoint's engine as its agent sees it: that at its address, else at its port, else the only one."""
    for engine in report.engines:
        if listening(engine.url) == place.address:
            return engine
    port = port_of(f"tcp://{place.address}")
    for engine in report.engines:
        if port_of(engine.url) == port:
            return engine
    return report.engines[0] if place.alone and len(report.engines) == 1 else None


def memory(report: Report, place: Place) -> GpuMemory | None:
    """Return the VRAM of the endpoint; ``None``, unknown, where a GPU of it does not say, or nobody knows whose it is.

    Where nobody said which GPUs it runs on, those count that have processes, if any is known to.
    """
    own, missing = _own(report, place)
    if missing or not own or (not place.gpus and not place.alone):
        return None
    if not place.gpus:
        own = [gpu for gpu in own if gpu.processes] or own
    known = [_memory(gpu, place.gpus, report) for gpu in own]
    figures = [one for one in known if one is not None]
    if len(figures) < len(known):
        return None
    free = len(figures) * min(free for _, free in figures)
    return GpuMemory(sum(total for total, _ in figures), free, patience(report))


def _memory(gpu: Gpu, wanted: Iterable[str], report: Report) -> tuple[int, int] | None:
    """Return all and free VRAM of ``gpu``, or of its instances that are ``wanted``."""
    if gpu.answer is not Answer.READ or gpu.age_seconds is None or gpu.age_seconds > patience(report):
        return None
    parts = [part for part in gpu.mig_instances if part.uuid in wanted]
    if parts:
        totals = [part.total_bytes for part in parts if part.total_bytes is not None]
        used = [part.used_bytes for part in parts if part.used_bytes is not None]
        if len(totals) < len(parts) or len(used) < len(parts):
            return None
        return sum(totals), max(0, sum(totals) - sum(used))
    total, free = gpu.memory_total_bytes, gpu.memory_free_bytes
    if free is None and total is not None and gpu.memory_used_bytes is not None:
        free = total - gpu.memory_used_bytes
    return None if total is None or free is None else (total, free)
