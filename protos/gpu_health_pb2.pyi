from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    STATE_HEALTHY: _ClassVar[State]
    STATE_UNKNOWN: _ClassVar[State]
    STATE_DEGRADED: _ClassVar[State]
    STATE_FAILED: _ClassVar[State]

class Answer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANSWER_UNSPECIFIED: _ClassVar[Answer]
    ANSWER_READ: _ClassVar[Answer]
    ANSWER_SILENT: _ClassVar[Answer]
    ANSWER_HUNG: _ClassVar[Answer]
    ANSWER_RESET_REQUIRED: _ClassVar[Answer]
    ANSWER_LOST: _ClassVar[Answer]

class DriverState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DRIVER_STATE_UNSPECIFIED: _ClassVar[DriverState]
    DRIVER_STATE_USABLE: _ClassVar[DriverState]
    DRIVER_STATE_NO_BINDINGS: _ClassVar[DriverState]
    DRIVER_STATE_NO_LIBRARY: _ClassVar[DriverState]
    DRIVER_STATE_NOT_LOADED: _ClassVar[DriverState]
    DRIVER_STATE_VERSION_MISMATCH: _ClassVar[DriverState]
    DRIVER_STATE_HUNG: _ClassVar[DriverState]
    DRIVER_STATE_ERROR: _ClassVar[DriverState]

class EngineState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENGINE_STATE_UNSPECIFIED: _ClassVar[EngineState]
    ENGINE_STATE_ANSWERS: _ClassVar[EngineState]
    ENGINE_STATE_REFUSES: _ClassVar[EngineState]
    ENGINE_STATE_SILENT: _ClassVar[EngineState]
    ENGINE_STATE_BAD_STATUS: _ClassVar[EngineState]
STATE_UNSPECIFIED: State
STATE_HEALTHY: State
STATE_UNKNOWN: State
STATE_DEGRADED: State
STATE_FAILED: State
ANSWER_UNSPECIFIED: Answer
ANSWER_READ: Answer
ANSWER_SILENT: Answer
ANSWER_HUNG: Answer
ANSWER_RESET_REQUIRED: Answer
ANSWER_LOST: Answer
DRIVER_STATE_UNSPECIFIED: DriverState
DRIVER_STATE_USABLE: DriverState
DRIVER_STATE_NO_BINDINGS: DriverState
DRIVER_STATE_NO_LIBRARY: DriverState
DRIVER_STATE_NOT_LOADED: DriverState
DRIVER_STATE_VERSION_MISMATCH: DriverState
DRIVER_STATE_HUNG: DriverState
DRIVER_STATE_ERROR: DriverState
ENGINE_STATE_UNSPECIFIED: EngineState
ENGINE_STATE_ANSWERS: EngineState
ENGINE_STATE_REFUSES: EngineState
ENGINE_STATE_SILENT: EngineState
ENGINE_STATE_BAD_STATUS: EngineState

class NodeReport(_message.Message):
    __slots__ = ("node", "boot_id", "sequence", "interval_ms", "machine_boot_id", "agent_version", "driver", "driver_version", "gpus", "engines")
    NODE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    MACHINE_BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    node: str
    boot_id: str
    sequence: int
    interval_ms: int
    machine_boot_id: str
    agent_version: str
    driver: DriverState
    driver_version: str
    gpus: _containers.RepeatedCompositeFieldContainer[Gpu]
    engines: _containers.RepeatedCompositeFieldContainer[Engine]
    def __init__(self, node: _Optional[str] = ..., boot_id: _Optional[str] = ..., sequence: _Optional[int] = ..., interval_ms: _Optional[int] = ..., machine_boot_id: _Optional[str] = ..., agent_version: _Optional[str] = ..., driver: _Optional[_Union[DriverState, str]] = ..., driver_version: _Optional[str] = ..., gpus: _Optional[_Iterable[_Union[Gpu, _Mapping]]] = ..., engines: _Optional[_Iterable[_Union[Engine, _Mapping]]] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class Reason(_message.Message):
    __slots__ = ("code", "state", "detail", "since_ms", "seen_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    code: str
    state: State
    detail: str
    since_ms: int
    seen_ms: int
    def __init__(self, code: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., detail: _Optional[str] = ..., since_ms: _Optional[int] = ..., seen_ms: _Optional[int] = ...) -> None: ...

class Process(_message.Message):
    __slots__ = ("pid", "used_bytes")
    PID_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    pid: int
    used_bytes: int
    def __init__(self, pid: _Optional[int] = ..., used_bytes: _Optional[int] = ...) -> None: ...

class Throttling(_message.Message):
    __slots__ = ("reasons",)
    REASONS_FIELD_NUMBER: _ClassVar[int]
    reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class MigInstance(_message.Message):
    __slots__ = ("uuid", "total_bytes", "used_bytes")
    UUID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    total_bytes: int
    used_bytes: int
    def __init__(self, uuid: _Optional[str] = ..., total_bytes: _Optional[int] = ..., used_bytes: _Optional[int] = ...) -> None: ...

class Xid(_message.Message):
    __slots__ = ("number", "age_ms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    age_ms: int
    def __init__(self, number: _Optional[int] = ..., age_ms: _Optional[int] = ...) -> None: ...

class Gpu(_message.Message):
    __slots__ = ("uuid", "index", "name", "pci_bus_id", "state", "reasons", "answer", "age_ms", "memory_total_bytes", "memory_used_bytes", "memory_free_bytes", "processes", "gpu_percent", "memory_percent", "celsius", "slowdown_celsius", "milliwatts", "limit_milliwatts", "throttling", "ecc_corrected", "ecc_uncorrected", "rows_remapped_corrected", "rows_remapped_uncorrected", "row_remap_pending", "row_remap_failed", "pages_retired_single_bit", "pages_retired_double_bit", "page_retirement_pending", "nvlinks_active", "nvlinks_inactive", "nvlinks_lost", "nvlink_errors", "pcie_width", "pcie_max_width", "pcie_replays", "mig_enabled", "mig_instances", "xids")
    UUID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PCI_BUS_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    GPU_PERCENT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PERCENT_FIELD_NUMBER: _ClassVar[int]
    CELSIUS_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_CELSIUS_FIELD_NUMBER: _ClassVar[int]
    MILLIWATTS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_MILLIWATTS_FIELD_NUMBER: _ClassVar[int]
    THROTTLING_FIELD_NUMBER: _ClassVar[int]
    ECC_CORRECTED_FIELD_NUMBER: _ClassVar[int]
    ECC_UNCORRECTED_FIELD_NUMBER: _ClassVar[int]
    ROWS_REMAPPED_CORRECTED_FIELD_NUMBER: _ClassVar[int]
    ROWS_REMAPPED_UNCORRECTED_FIELD_NUMBER: _ClassVar[int]
    ROW_REMAP_PENDING_FIELD_NUMBER: _ClassVar[int]
    ROW_REMAP_FAILED_FIELD_NUMBER: _ClassVar[int]
    PAGES_RETIRED_SINGLE_BIT_FIELD_NUMBER: _ClassVar[int]
    PAGES_RETIRED_DOUBLE_BIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_RETIREMENT_PENDING_FIELD_NUMBER: _ClassVar[int]
    NVLINKS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    NVLINKS_INACTIVE_FIELD_NUMBER: _ClassVar[int]
    NVLINKS_LOST_FIELD_NUMBER: _ClassVar[int]
    NVLINK_ERRORS_FIELD_NUMBER: _ClassVar[int]
    PCIE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    PCIE_MAX_WIDTH_FIELD_NUMBER: _ClassVar[int]
    PCIE_REPLAYS_FIELD_NUMBER: _ClassVar[int]
    MIG_ENABLED_FIELD_NUMBER: _ClassVar[int]
    MIG_INSTANCES_FIELD_NUMBER: _ClassVar[int]
    XIDS_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    index: int
    name: str
    pci_bus_id: str
    state: State
    reasons: _containers.RepeatedCompositeFieldContainer[Reason]
    answer: Answer
    age_ms: int
    memory_total_bytes: int
    memory_used_bytes: int
    memory_free_bytes: int
    processes: _containers.RepeatedCompositeFieldContainer[Process]
    gpu_percent: int
    memory_percent: int
    celsius: int
    slowdown_celsius: int
    milliwatts: int
    limit_milliwatts: int
    throttling: Throttling
    ecc_corrected: int
    ecc_uncorrected: int
    rows_remapped_corrected: int
    rows_remapped_uncorrected: int
    row_remap_pending: bool
    row_remap_failed: bool
    pages_retired_single_bit: int
    pages_retired_double_bit: int
    page_retirement_pending: bool
    nvlinks_active: int
    nvlinks_inactive: int
    nvlinks_lost: int
    nvlink_errors: int
    pcie_width: int
    pcie_max_width: int
    pcie_replays: int
    mig_enabled: bool
    mig_instances: _containers.RepeatedCompositeFieldContainer[MigInstance]
    xids: _containers.RepeatedCompositeFieldContainer[Xid]
    def __init__(self, uuid: _Optional[str] = ..., index: _Optional[int] = ..., name: _Optional[str] = ..., pci_bus_id: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., reasons: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ..., answer: _Optional[_Union[Answer, str]] = ..., age_ms: _Optional[int] = ..., memory_total_bytes: _Optional[int] = ..., memory_used_bytes: _Optional[int] = ..., memory_free_bytes: _Optional[int] = ..., processes: _Optional[_Iterable[_Union[Process, _Mapping]]] = ..., gpu_percent: _Optional[int] = ..., memory_percent: _Optional[int] = ..., celsius: _Optional[int] = ..., slowdown_celsius: _Optional[int] = ..., milliwatts: _Optional[int] = ..., limit_milliwatts: _Optional[int] = ..., throttling: _Optional[_Union[Throttling, _Mapping]] = ..., ecc_corrected: _Optional[int] = ..., ecc_uncorrected: _Optional[int] = ..., rows_remapped_corrected: _Optional[int] = ..., rows_remapped_uncorrected: _Optional[int] = ..., row_remap_pending: _Optional[bool] = ..., row_remap_failed: _Optional[bool] = ..., pages_retired_single_bit: _Optional[int] = ..., pages_retired_double_bit: _Optional[int] = ..., page_retirement_pending: _Optional[bool] = ..., nvlinks_active: _Optional[int] = ..., nvlinks_inactive: _Optional[int] = ..., nvlinks_lost: _Optional[int] = ..., nvlink_errors: _Optional[int] = ..., pcie_width: _Optional[int] = ..., pcie_max_width: _Optional[int] = ..., pcie_replays: _Optional[int] = ..., mig_enabled: _Optional[bool] = ..., mig_instances: _Optional[_Iterable[_Union[MigInstance, _Mapping]]] = ..., xids: _Optional[_Iterable[_Union[Xid, _Mapping]]] = ...) -> None: ...

class Engine(_message.Message):
    __slots__ = ("url", "state", "http_status", "age_ms", "took_ms")
    URL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    TOOK_MS_FIELD_NUMBER: _ClassVar[int]
    url: str
    state: EngineState
    http_status: int
    age_ms: int
    took_ms: int
    def __init__(self, url: _Optional[str] = ..., state: _Optional[_Union[EngineState, str]] = ..., http_status: _Optional[int] = ..., age_ms: _Optional[int] = ..., took_ms: _Optional[int] = ...) -> None: ...
