"""The report on the wire: what is known now, with ages instead of times."""

import platform
import uuid
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from protos import gpu_health_pb2 as pb
from tidegate.agent.probe import EngineState, Probe
from tidegate.agent.readings import Answer, Reading
from tidegate.agent.session import Driver, DriverState
from tidegate.agent.verdict import Reason, State
from tidegate.agent.watch import Watched

_STATES: Final = {
    State.HEALTHY: pb.STATE_HEALTHY,
    State.UNKNOWN: pb.STATE_UNKNOWN,
    State.DEGRADED: pb.STATE_DEGRADED,
    State.FAILED: pb.STATE_FAILED,
}
_ANSWERS: Final = {
    Answer.READ: pb.ANSWER_READ,
    Answer.SILENT: pb.ANSWER_SILENT,
    Answer.HUNG: pb.ANSWER_HUNG,
    Answer.RESET_REQUIRED: pb.ANSWER_RESET_REQUIRED,
    Answer.LOST: pb.ANSWER_LOST,
}
_DRIVERS: Final = {
    DriverState.USABLE: pb.DRIVER_STATE_USABLE,
    DriverState.NO_BINDINGS: pb.DRIVER_STATE_NO_BINDINGS,
    DriverState.NO_LIBRARY: pb.DRIVER_STATE_NO_LIBRARY,
    DriverState.NOT_LOADED: pb.DRIVER_STATE_NOT_LOADED,
    DriverState.VERSION_MISMATCH: pb.DRIVER_STATE_VERSION_MISMATCH,
    DriverState.HUNG: pb.DRIVER_STATE_HUNG,
    DriverState.ERROR: pb.DRIVER_STATE_ERROR,
}
_ENGINES: Final = {
    EngineState.ANSWERS: pb.ENGINE_STATE_ANSWERS,
    EngineState.REFUSES: pb.ENGINE_STATE_REFUSES,
    EngineState.SILENT: pb.ENGINE_STATE_SILENT,
    EngineState.BAD_STATUS: pb.ENGINE_STATE_BAD_STATUS,
}

MACHINE_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Linux: another one after each start of the machine."""


class Sender(NamedTuple):
    """Who reports: the node by name, this life of the agent, this life of the machine, and how often (seconds)."""

    node: str
    boot_id: str
    machine_boot_id: str
    version: str
    interval: float


def sender(node: str, interval: float) -> Sender:
    """Return who we are, with a new boot id."""
    try:
        machine = MACHINE_BOOT_ID.read_text("ascii").strip()
    except OSError:
        machine = ""
    return Sender(node, uuid.uuid4().hex, machine, metadata.version("tidegate"), interval)


def default_node() -> str:
    """Return this machine's name."""
    return platform.node()


def report(
    who: Sender, sequence: int, driver: Driver, watched: Iterable[Watched], probes: Iterable[Probe], now: float
) -> pb.NodeReport:
    """Return what is known at ``now``."""
    return pb.NodeReport(
        node=who.node,
        boot_id=who.boot_id,
        sequence=sequence,
        interval_ms=round(who.interval * 1000),
        machine_boot_id=who.machine_boot_id,
        agent_version=who.version,
        driver=_DRIVERS[driver.state],
        driver_version=driver.version or "",
        gpus=[_gpu(one, now) for one in watched],
        engines=[_engine(probe, now) for probe in probes],
    )


def _age(at: float, now: float) -> int:
    return max(0, round((now - at) * 1000))


def _gpu(watched: Watched, now: float) -> pb.Gpu:
    identity, verdict, last = watched.identity, watched.verdict, watched.last
    gpu = pb.Gpu(
        uuid=identity.uuid,
        index=identity.ordinal,
        name=identity.name or "",
        pci_bus_id=identity.pci_bus_id or "",
        state=_STATES[verdict.state],
        reasons=[_reason(reason, now) for reason in verdict.reasons],
        xids=[pb.Xid(number=xid.number, age_ms=_age(xid.at, now)) for xid in watched.xids],
    )
    if last is not None:
        gpu.answer = _ANSWERS[last.answer]
        gpu.age_ms = _age(last.at, now)
        gpu.MergeFrom(_measured(last))
    return gpu


def _reason(reason: Reason, now: float) -> pb.Reason:
    return pb.Reason(
        code=reason.code,
        state=_STATES[reason.state],
        detail=reason.detail,
        since_ms=_age(reason.since, now),
        seen_ms=_age(reason.seen, now),
    )


def _measured(reading: Reading) -> pb.Gpu:
    """Return the fields of ``reading`` that are known; protobuf takes ``None`` for a field that is not there."""
    memory, use, heat, power = reading.memory, reading.utilisation, reading.temperature, reading.power
    ecc, rows, pages = reading.ecc, reading.row_remap, reading.retired_pages
    links, pcie, mig = reading.nvlink, reading.pcie, reading.mig
    return pb.Gpu(
        memory_total_bytes=memory and memory.total_bytes,
        memory_used_bytes=memory and memory.used_bytes,
        memory_free_bytes=memory and memory.free_bytes,
        processes=[pb.Process(pid=one.pid, used_bytes=one.used_bytes) for one in (memory and memory.processes) or ()],
        gpu_percent=use and use.gpu_percent,
        memory_percent=use and use.memory_percent,
        celsius=heat and heat.celsius,
        slowdown_celsius=heat and heat.slowdown_celsius,
        milliwatts=power and power.milliwatts,
        limit_milliwatts=power and power.limit_milliwatts,
        throttling=None if power is None or power.throttled is None else pb.Throttling(reasons=sorted(power.throttled)),
        ecc_corrected=ecc and ecc.corrected,
        ecc_uncorrected=ecc and ecc.uncorrected,
        rows_remapped_corrected=rows and rows.corrected,
        rows_remapped_uncorrected=rows and rows.uncorrected,
        row_remap_pending=rows and rows.pending,
        row_remap_failed=rows and rows.failed,
        pages_retired_single_bit=pages and pages.single_bit,
        pages_retired_double_bit=pages and pages.double_bit,
        page_retirement_pending=pages and pages.pending,
        nvlinks_active=links and links.active,
        nvlinks_inactive=links and links.inactive,
        nvlinks_lost=links and links.lost,
        nvlink_errors=links and links.errors,
        pcie_width=pcie and pcie.width,
        pcie_max_width=pcie and pcie.max_width,
        pcie_replays=pcie and pcie.replays,
        mig_enabled=mig and mig.enabled,
        mig_instances=[
            pb.MigInstance(uuid=one.uuid, total_bytes=one.total_bytes, used_bytes=one.used_bytes)
            for one in (mig.instances if mig else ())
        ],
    )


def _engine(probe: Probe, now: float) -> pb.Engine:
    return pb.Engine(
        url=probe.url,
        state=_ENGINES[probe.state],
        http_status=probe.http_status,
        age_ms=_age(probe.at, now),
        took_ms=round(probe.seconds * 1000),
    )
