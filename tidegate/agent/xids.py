"""What each Xid says about the GPU: whether it condemns it, casts doubt on it, or belongs to the application.

Source: NVIDIA's Xid catalog (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, Ampere and later),
by its column "Resolution Bucket (Immediate Action)". RESET_GPU, RESTART_BM and RESTART_VM condemn: no application runs
soundly before someone has acted. RESTART_APP and IGNORE belong to the application. Three kinds are neither:

- The NVLink workflows (74, 144 to 150): a GPU reports them also when the one at the other end failed.
- Buckets that contradict other sources: 109 is RESET_GPU in the catalog and an application's error in NVIDIA's own
  device plugin for Kubernetes (https://github.com/NVIDIA/k8s-device-plugin, internal/rm/health.go); 155 and 156 say
  RESET_GPU, and that they may be meant or ignored.
- Errors whose text says that the GPU can go on and should be looked at: 92, 94, 157, 161, and those without a bucket.

48 has a workflow of its own; its text, "a GPU reset or node reboot is needed", condemns.
"""

import enum
import re
from collections.abc import Mapping
from types import MappingProxyType


class XidClass(enum.Enum):
    """What an Xid says about the GPU."""

    CONDEMN = "condemn"
    WATCH = "watch"
    APPLICATION = "application"


def _table() -> dict[int, XidClass]:
    condemning = (46, 48, 62, 64, 79, 95, 110, 119, 120, 136, 140, 143, 151, 158)
    doubtful = (54, 74, 92, 94, 109, *range(144, 151), 155, 156, 157, 159, 161, 167, 168, 169, 171, 172)
    engines = (
        39,
        40,
        41,
        68,
        *range(70, 73),
        *range(75, 78),
        *range(82, 90),
        *range(96, 106),
        *range(126, 136),
        139,
        142,
    )
    faults = (8, 11, 13, 25, 31, 32, 37, 38, 43, 44, 45, 60, 66, 67, 69, 80, 108, 137, 141)
    told = (14, 63, 93, 106, 107, 121, 152, 153, 154, 160, *range(162, 167), 170)
    table = dict.fromkeys((*engines, *faults, *told), XidClass.APPLICATION)
    table |= dict.fromkeys(doubtful, XidClass.WATCH)
    return table | dict.fromkeys(condemning, XidClass.CONDEMN)


XIDS: Mapping[int, XidClass] = MappingProxyType(_table())
"""By number. Of 63 (a row was remapped) the signals say more; 154 only repeats what another Xid asks for."""

UNKNOWN_XID = XidClass.WATCH
"""What is not in the table is neither harmless nor the end."""


_CHANGE = re.compile(rf"([0-9]{{1,10}})=({'|'.join(item.value for item in XidClass)})", re.ASCII)


class XidClassError(ValueError):
    """What was given for ``--xid`` is not ``NUMBER=CLASS``."""


def with_changes(changes: tuple[str, ...]) -> Mapping[int, XidClass]:
    """Return the table with ``changes`` of the form ``109=application``.

    Raises:
        XidClassError: one of them has another form.
    """
    table = dict(XIDS)
    for change in changes:
        parts = _CHANGE.fullmatch(change)
        if parts is None:
            classes = ", ".join(item.value for item in XidClass)
            raise XidClassError(f"expected NUMBER=CLASS with a class of {classes}, got {change!r}")
        table[int(parts[1])] = XidClass(parts[2])
    return MappingProxyType(table)
