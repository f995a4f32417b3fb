"""From the wire to ``reported``: field by field, what cannot be true is left out and named.

An agent that is wrong about one field is not wrong about all of them, and must neither eject nor attract by it.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from google.protobuf.message import DecodeError

from protos import gpu_health_pb2 as pb
from tidegate.health.reported import (
    Answer,
    Condition,
    Driver,
    Engine,
    EngineAnswer,
    Gpu,
    MigInstance,
    Process,
    Reason,
    Report,
    Xid,
)

MAX_GPUS = 64
MAX_ENGINES = 64
MAX_REASONS = 32
MAX_PROCESSES = 64
MAX_INSTANCES = 16
MAX_XIDS = 16
MAX_TEXT = 256
MAX_INTERVAL_SECONDS = 60.0
MAX_AGE_SECONDS = 366 * 86400.0
"""More than any of these is not believed, or cut."""

_BYTES = range(1 << 50)
_COUNT = range(1 << 62)

BOUNDS: Final[Mapping[str, range]] = MappingProxyType(
    {
        "memory_total_bytes": _BYTES,
        "memory_used_bytes": _BYTES,
        "memory_free_bytes": _BYTES,
        "gpu_percent": range(101),
        "memory_percent": range(101),
        "celsius": range(-60, 201),
        "slowdown_celsius": range(1, 201),
        "milliwatts": range(10_000_001),
        "limit_milliwatts": range(10_000_001),
        "ecc_corrected": _COUNT,
        "ecc_uncorrected": _COUNT,
        "rows_remapped_corrected": range(1 << 20),
        "rows_remapped_uncorrected": range(1 << 20),
        "row_remap_pending": range(2),
        "row_remap_failed": range(2),
        "pages_retired_single_bit": range(1 << 20),
        "pages_retired_double_bit": range(1 << 20),
        "page_retirement_pending": range(2),
        "nvlinks_active": range(65),
        "nvlinks_inactive": range(65),
        "nvlinks_lost": range(65),
        "nvlink_errors": _COUNT,
        "pcie_width": range(1, 33),
        "pcie_max_width": range(1, 33),
        "pcie_replays": _COUNT,
        "mig_enabled": range(2),
    }
)
"""What each measurement can be."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}", re.ASCII)
_CODE = re.compile(r"[a-z][a-z0-9_]{0,39}", re.ASCII)

_CONDITIONS = {
    pb.STATE_HEALTHY: Condition.HEALTHY,
    pb.STATE_DEGRADED: Condition.DEGRADED,
    pb.STATE_FAILED: Condition.FAILED,
}
_ANSWERS = {
    pb.ANSWER_READ: Answer.READ,
    pb.ANSWER_SILENT: Answer.SILENT,
    pb.ANSWER_HUNG: Answer.HUNG,
    pb.ANSWER_RESET_REQUIRED: Answer.RESET_REQUIRED,
    pb.ANSWER_LOST: Answer.LOST,
}
_DRIVERS = {
    pb.DRIVER_STATE_USABLE: Driver.USABLE,
    pb.DRIVER_STATE_NO_BINDINGS: Driver.NO_BINDINGS,
    pb.DRIVER_STATE_NO_LIBRARY: Driver.NO_LIBRARY,
    pb.DRIVER_STATE_NOT_LOADED: Driver.NOT_LOADED,
    pb.DRIVER_STATE_VERSION_MISMATCH: Driver.VERSION_MISMATCH,
    pb.DRIVER_STATE_HUNG: Driver.HUNG,
    pb.DRIVER_STATE_ERROR: Driver.ERROR,
}
_ENGINES = {
    pb.ENGINE_STATE_ANSWERS: EngineAnswer.ANSWERS,
    pb.ENGINE_STATE_REFUSES: EngineAnswer.REFUSES,
    pb.ENGINE_STATE_SILENT: EngineAnswer.SILENT,
    pb.ENGINE_STATE_BAD_STATUS: EngineAnswer.BAD_STATUS,
}

T = TypeVar("T")


class MalformedError(ValueError):
    """It is no report at all, or does not say whose and which it is."""


def decoded(data: bytes) -> Report:
    """Return the report in ``data``.

    Raises:
        MalformedError: it cannot be read, or node, boot id or sequence are missing.
    """
    try:
        message = pb.NodeReport.FromString(data)
    except DecodeError:
        raise MalformedError("not a report") from None
    if not (_NAME.fullmatch(message.node) and _NAME.fullmatch(message.boot_id) and message.sequence):
        raise MalformedError("a report says its node, its boot id and its sequence")
    return _Decoding().report(message)


class _Decoding:
    """One report on its way, with what was dropped of it so far."""

    def __init__(self) -> None:
        self._dropped: dict[str, None] = {}

    def report(self, message: pb.NodeReport) -> Report:
        gpus: dict[str, Gpu] = {}
        for gpu in self._first(message.gpus, MAX_GPUS, "gpus"):
            if not _NAME.fullmatch(gpu.uuid) or gpu.uuid in gpus or gpu.index >= MAX_GPUS:
                self._drop("uuid")
            else:
                gpus[gpu.uuid] = self._gpu(gpu)
        engines = tuple(map(self._engine, self._first(message.engines, MAX_ENGINES, "engines")))
        interval = message.interval_ms / 1000
        if not 0 < interval <= MAX_INTERVAL_SECONDS:
            self._drop("interval_ms")
            interval = MAX_INTERVAL_SECONDS
        return Report(
            message.node,
            message.boot_id,
            message.sequence,
            interval,
            _text(message.machine_boot_id),
            _text(message.agent_version),
            _DRIVERS.get(message.driver, Driver.UNKNOWN),
            _text(message.driver_version),
            tuple(gpus.values()),
            engines,
            tuple(self._dropped),
        )

    def _gpu(self, gpu: pb.Gpu) -> Gpu:
        measured = {name: self._measured(gpu, name) for name in BOUNDS}
        total = measured["memory_total_bytes"]
        for part in ("memory_used_bytes", "memory_free_bytes"):
            held = measured[part]
            if total is not None and held is not None and held > total:
                self._drop(part)
                measured[part] = None
        reasons = self._first(gpu.reasons, MAX_REASONS, "reasons")
        instances = self._first(gpu.mig_instances, MAX_INSTANCES, "mig_instances")
        xids = self._first(gpu.xids, MAX_XIDS, "xids")
        return Gpu(
            uuid=gpu.uuid,
            ordinal=gpu.index,
            name=_text(gpu.name),
            pci_bus_id=_text(gpu.pci_bus_id),
            condition=_CONDITIONS.get(gpu.state, Condition.UNKNOWN),
            reasons=tuple(filter(None, map(self._reason, reasons))),
            answer=_ANSWERS.get(gpu.answer, Answer.UNKNOWN),
            age_seconds=self._age(gpu.age_ms, "age_ms") if gpu.answer else None,
            processes=tuple(map(self._process, self._first(gpu.processes, MAX_PROCESSES, "processes"))),
            throttled=self._throttled(gpu),
            mig_instances=tuple(filter(None, map(self._instance, instances))),
            xids=tuple(filter(None, map(self._xid, xids))),
            **measured,  # type: ignore[arg-type] # by name; bool where the message has bool
        )

    def _measured(self, gpu: pb.Gpu, name: str) -> int | None:
        if not gpu.HasField(name):
            return None
        value: int = getattr(gpu, name)
        if value in BOUNDS[name]:
            return value
        self._drop(name)
        return None

    def _reason(self, reason: pb.Reason) -> Reason | None:
        since, seen = self._age(reason.since_ms, "since_ms"), self._age(reason.seen_ms, "seen_ms")
        condition = _CONDITIONS.get(reason.state, Condition.UNKNOWN)
        if since is None or seen is None or not _CODE.fullmatch(reason.code):
            self._drop("reasons")
            return None
        return Reason(reason.code, condition, _text(reason.detail), since, seen)

    def _process(self, process: pb.Process) -> Process:
        return Process(process.pid, self._bytes(process, "used_bytes"))

    def _instance(self, instance: pb.MigInstance) -> MigInstance | None:
        if not _NAME.fullmatch(instance.uuid):
            self._drop("mig_instances")
            return None
        return MigInstance(instance.uuid, self._bytes(instance, "total_bytes"), self._bytes(instance, "used_bytes"))

    def _bytes(self, message: pb.Process | pb.MigInstance, name: str) -> int | None:
        if not message.HasField(name):
            return None
        value: int = getattr(message, name)
        if value in _BYTES:
            return value
        self._drop(name)
        return None

    def _throttled(self, gpu: pb.Gpu) -> frozenset[str] | None:
        if not gpu.HasField("throttling"):
            return None
        reasons = self._first(gpu.throttling.reasons, MAX_REASONS, "throttling")
        return frozenset(reason for reason in reasons if _CODE.fullmatch(reason))

    def _xid(self, xid: pb.Xid) -> Xid | None:
        age = self._age(xid.age_ms, "age_ms")
        return None if age is None else Xid(xid.number, age)

    def _engine(self, engine: pb.Engine) -> Engine:
        status = engine.http_status if engine.HasField("http_status") else None
        if status is not None and not 100 <= status <= 599:
            self._drop("http_status")
            status = None
        return Engine(
            _text(engine.url),
            _ENGINES.get(engine.state, EngineAnswer.UNKNOWN),
            status,
            self._age(engine.age_ms, "age_ms"),
            self._age(engine.took_ms, "took_ms"),
        )

    def _age(self, milliseconds: int, name: str) -> float | None:
        if milliseconds <= MAX_AGE_SECONDS * 1000:
            return milliseconds / 1000
        self._drop(name)
        return None

    def _first(self, items: Iterable[T], bound: int, name: str) -> list[T]:
        kept: list[T] = []
        for item in items:
            if len(kept) == bound:
                self._drop(name)
                break
            kept.append(item)
        return kept

    def _drop(self, name: str) -> None:
        self._dropped[name] = None


def _text(text: str) -> str:
    """Return ``text`` as far as it can be shown."""
    return "".join(character if character.isprintable() else "?" for character in text[:MAX_TEXT])
