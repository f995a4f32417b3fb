"""What a node said last, after every field was checked. ``None`` is unknown, which is not zero.

All times are ages: seconds before the report was made, by the node's own clock. Nothing here is a wall-clock time.
"""

import enum
from typing import NamedTuple


class Condition(enum.Enum):
    """What an agent thinks of a GPU."""

    HEALTHY = "healthy"
    UNKNOWN = "unknown"
    DEGRADED = "degraded"
    FAILED = "failed"


class Answer(enum.Enum):
    """How a GPU answered the last time it was asked."""

    UNKNOWN = "unknown"
    READ = "read"
    SILENT = "silent"
    HUNG = "hung"
    RESET_REQUIRED = "reset_required"
    LOST = "lost"


class Driver(enum.Enum):
    """Whether the node's driver can be asked."""

    UNKNOWN = "unknown"
    USABLE = "usable"
    NO_BINDINGS = "no_bindings"
    NO_LIBRARY = "no_library"
    NOT_LOADED = "not_loaded"
    VERSION_MISMATCH = "version_mismatch"
    HUNG = "hung"
    ERROR = "error"


class EngineAnswer(enum.Enum):
    """How an engine answered its own node."""

    UNKNOWN = "unknown"
    ANSWERS = "answers"
    REFUSES = "refuses"
    SILENT = "silent"
    BAD_STATUS = "bad_status"


class Reason(NamedTuple):
    """Why a GPU is in its condition, for how long, and how long ago that was last seen."""

    code: str
    condition: Condition
    detail: str
    since_seconds: float
    seen_seconds: float


class Process(NamedTuple):
    """A process that computes on a GPU, and the VRAM that it holds."""

    pid: int
    used_bytes: int | None


class MigInstance(NamedTuple):
    """A part of a GPU that is used as a device of its own."""

    uuid: str
    total_bytes: int | None
    used_bytes: int | None


class Xid(NamedTuple):
    """An error that the driver reported, by NVIDIA's number, and how long ago."""

    number: int
    age_seconds: float


class Gpu(NamedTuple):
    """A GPU; ``age_seconds`` is that of its measurements."""

    uuid: str
    ordinal: int
    name: str
    pci_bus_id: str
    condition: Condition
    reasons: tuple[Reason, ...]
    answer: Answer
    age_seconds: float | None
    processes: tuple[Process, ...]
    throttled: frozenset[str] | None
    mig_instances: tuple[MigInstance, ...]
    xids: tuple[Xid, ...]
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    gpu_percent: int | None = None
    memory_percent: int | None = None
    celsius: int | None = None
    slowdown_celsius: int | None = None
    milliwatts: int | None = None
    limit_milliwatts: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    rows_remapped_corrected: int | None = None
    rows_remapped_uncorrected: int | None = None
    row_remap_pending: bool | None = None
    row_remap_failed: bool | None = None
    pages_retired_single_bit: int | None = None
    pages_retired_double_bit: int | None = None
    page_retirement_pending: bool | None = None
    nvlinks_active: int | None = None
    nvlinks_inactive: int | None = None
    nvlinks_lost: int | None = None
    nvlink_errors: int | None = None
    pcie_width: int | None = None
    pcie_max_width: int | None = None
    pcie_replays: int | None = None
    mig_enabled: bool | None = None


class Engine(NamedTuple):
    """How the engine at ``url``, by its node's own view, answered ``age_seconds`` ago, and how long that took."""

    url: str
    answer: EngineAnswer
    http_status: int | None
    age_seconds: float | None
    took_seconds: float | None


class Report(NamedTuple):
    """What a node says of itself; ``dropped`` names the fields that were left out because they cannot be true."""

    node: str
    boot_id: str
    sequence: int
    interval_seconds: float
    machine_boot_id: str
    agent_version: str
    driver: Driver
    driver_version: str
    gpus: tuple[Gpu, ...]
    engines: tuple[Engine, ...]
    dropped: tuple[str, ...]
