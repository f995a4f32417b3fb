"""NVML's errors and what each means to us, without NVML: the library is an argument, so that a test can be it.

Numbers are those of ``nvmlReturn_t`` in nvml.h, which is a stable ABI.
"""

import contextlib
import importlib
from typing import Any, Final

UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
VERSION_MISMATCH: Final = 18
NO_DATA: Final = 21
NOT_FOUND: Final = 6

Nvml = Any
"""The module ``pynvml`` of nvidia-ml-py, or what behaves like it."""


class Lost(Exception):  # noqa: N818
    """The GPU fell off the bus."""


class ResetRequired(Exception):  # noqa: N818
    """The GPU answers nothing before it is reset."""


class DriverGone(Exception):  # noqa: N818
    """The driver was unloaded; everything must be opened again."""


def bindings() -> Nvml | None:
    """Return nvidia-ml-py's module, or ``None`` where it is not installed."""
    with contextlib.suppress(ImportError):
        return importlib.import_module("pynvml")
    return None


def code_of(error: Exception) -> int | None:
    """Return NVML's number of ``error``; ``None`` if it is none of NVML's."""
    code = getattr(error, "value", None)
    return code if isinstance(code, int) else None
