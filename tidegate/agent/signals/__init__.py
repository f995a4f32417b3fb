"""The signals, one file for each: what is asked of NVML for it, and what the answers mean.

Each is ``async def read(gpu)``, named like the field of ``readings.Reading`` that it fills. Xids are events and are not
asked for: ``xid`` waits for them.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from tidegate.agent.gpu import Gpu
from tidegate.agent.signals import (
    ecc,
    memory,
    mig,
    nvlink,
    pcie,
    power,
    retired_pages,
    row_remap,
    temperature,
    utilisation,
)

SIGNALS: Mapping[str, Callable[[Gpu], Awaitable[Any]]] = MappingProxyType(
    {
        "memory": memory.read,
        "utilisation": utilisation.read,
        "temperature": temperature.read,
        "power": power.read,
        "ecc": ecc.read,
        "row_remap": row_remap.read,
        "retired_pages": retired_pages.read,
        "nvlink": nvlink.read,
        "pcie": pcie.read,
        "mig": mig.read,
    }
)
