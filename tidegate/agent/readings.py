"""What was read of a GPU at one moment. ``None`` is unknown, which is not zero."""

import enum
from typing import NamedTuple


class Process(NamedTuple):
    """A process that computes on a GPU, and the VRAM that it holds, in bytes."""

    pid: int
    used_bytes: int | None


class Memory(NamedTuple):
    """VRAM in bytes, and who holds it."""

    total_bytes: int
    used_bytes: int
    free_bytes: int
    processes: tuple[Process, ...] | None


class Utilisation(NamedTuple):
    """Percent of the last sampling period (up to a second) in which a kernel ran, or memory was read or written."""

    gpu_percent: int
    memory_percent: int


class Temperature(NamedTuple):
    """Degrees Celsius: of the GPU, and from which on this GPU slows itself down."""

    celsius: int | None
    slowdown_celsius: int | None


class Power(NamedTuple):
    """Milliwatts drawn and allowed, and why clocks are lower than they could be (names without spaces)."""

    milliwatts: int | None
    limit_milliwatts: int | None
    throttled: frozenset[str] | None


class Ecc(NamedTuple):
    """Memory errors since the driver was loaded."""

    corrected: int | None
    uncorrected: int | None


class RowRemap(NamedTuple):
    """Rows of memory replaced by spare ones, whether a reset is needed for more, and whether one could not be."""

    corrected: int
    uncorrected: int
    pending: bool
    failed: bool


class RetiredPages(NamedTuple):
    """Pages taken out of use (before Ampere), by cause, and whether more wait for a reset."""

    single_bit: int | None
    double_bit: int | None
    pending: bool | None


class NvLink(NamedTuple):
    """Links that are up and down, those down that were up before, and errors (replays, recoveries, CRC)."""

    active: int
    inactive: int
    lost: int
    errors: int | None


class Pcie(NamedTuple):
    """Lanes in use, lanes that GPU and slot could use, and replayed packets."""

    width: int | None
    max_width: int | None
    replays: int | None


class MigInstance(NamedTuple):
    """A part of a GPU that is used as a device of its own."""

    uuid: str
    total_bytes: int | None
    used_bytes: int | None


class Mig(NamedTuple):
    """Whether the GPU is cut into instances, and which."""

    enabled: bool
    instances: tuple[MigInstance, ...]


class Xid(NamedTuple):
    """An error that the driver reported, by NVIDIA's number, and when (seconds, monotonic)."""

    number: int
    at: float


class Identity(NamedTuple):
    """Which GPU it is, ``ordinal`` by NVML's index. ``uuid`` is ``index-N`` for one that could not say its own."""

    uuid: str
    ordinal: int
    name: str | None = None
    pci_bus_id: str | None = None


class Answer(enum.Enum):
    """How a GPU answered as a whole."""

    READ = "read"
    SILENT = "silent"
    """Nothing could be read of it."""
    HUNG = "hung"
    """A call did not return within its deadline."""
    RESET_REQUIRED = "reset_required"
    LOST = "lost"
    """It fell off the bus, or was there and is not any more."""


class Reading(NamedTuple):
    """Everything that was read in one sweep, at ``at`` (seconds, monotonic)."""

    at: float
    answer: Answer
    memory: Memory | None = None
    utilisation: Utilisation | None = None
    temperature: Temperature | None = None
    power: Power | None = None
    ecc: Ecc | None = None
    row_remap: RowRemap | None = None
    retired_pages: RetiredPages | None = None
    nvlink: NvLink | None = None
    pcie: Pcie | None = None
    mig: Mig | None = None
    xids: tuple[Xid, ...] = ()
    """Reported since the sweep before."""
