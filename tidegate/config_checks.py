"""How engines are asked how they are, as the configuration writes it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, Field

from tidegate.config_values import Model, Seconds, Section
from tidegate.faults import fault, shown

CheckName = Literal["tcp", "http", "model_loaded", "inference", "progress"]


_PATH: Final = r"^/[!-~]*$"


def _path(path: str) -> str:
    if not re.fullmatch(_PATH, path, re.ASCII):
        raise fault(f"expected a path, such as /health, not {shown(path)}")
    return path


PagePath = Annotated[str, AfterValidator(_path), Field(max_length=1024, json_schema_extra={"pattern": _PATH})]


class Pace(NamedTuple):
    """What a check goes by where it does not say: seconds between two, of one; and how many in a row count."""

    interval: float
    timeout: float
    fall: int
    rise: int


DEFAULTS: Final[Mapping[str, Pace]] = MappingProxyType(
    {
        "tcp": Pace(2.0, 1.0, 3, 2),
        "http": Pace(2.0, 5.0, 3, 2),
        "model_loaded": Pace(5.0, 5.0, 3, 1),
        "inference": Pace(60.0, 30.0, 2, 1),
        "progress": Pace(1.0, 1.0, 1, 1),
    }
)
"""The thresholds are HAProxy's. SGLang's health page generates a token, which takes a second or more."""


class Check(Section):
    """One way to find out how an engine is."""

    name: CheckName = Field(description="Which one.")
    interval_seconds: Seconds | None = Field(
        None,
        ge=0.05,
        description="Pause between two, jittered by a tenth. Default: 2 for `tcp` and `http`, 5 for `model_loaded`, "
        "60 for `inference`, 1 for `progress`.",
    )
    timeout_seconds: Seconds | None = Field(
        None,
        ge=0.001,
        description="Deadline of one. Default: 1 for `tcp`, 5 for `http` and `model_loaded`, 30 for `inference`.",
    )
    fall: int | None = Field(
        None,
        ge=1,
        le=100,
        description="Failures in a row that count. Default: 3; 2 for `inference`, 1 for `progress`.",
    )
    rise: int | None = Field(
        None,
        ge=1,
        le=100,
        description="Passes in a row that count after that. Default: 2 for `tcp` and `http`, else 1.",
    )
    path: PagePath | None = Field(
        None,
        description="What `http`, `model_loaded` and `inference` ask for. Default: by the engine.",
    )
    status: int | None = Field(
        None, ge=100, le=599, description="The one status that passes `http`. Default: any from 200 to 299."
    )
    model: Model | None = Field(
        None,
        description="The model of `model_loaded` and `inference`. Default: one that the endpoint or the pool names "
        "without `*`; without any, what the engine lists.",
    )
    still_seconds: Seconds = Field(
        30.0,
        ge=1.0,
        description="For how long there may be no sign of progress while requests are there, besides the time that "
        "their prompts take: then `progress` fails, and another check that passes is no sign of health.",
    )

    @property
    def interval(self) -> float:
        """Seconds between two."""
        return DEFAULTS[self.name].interval if self.interval_seconds is None else self.interval_seconds

    @property
    def timeout(self) -> float:
        """The deadline of one, in seconds."""
        return DEFAULTS[self.name].timeout if self.timeout_seconds is None else self.timeout_seconds

    @property
    def falls(self) -> int:
        """Failures in a row that count."""
        return DEFAULTS[self.name].fall if self.fall is None else self.fall

    @property
    def rises(self) -> int:
        """Passes in a row that count."""
        return DEFAULTS[self.name].rise if self.rise is None else self.rise

    @property
    def valid_seconds(self) -> float:
        """How long what it found counts: until two in a row have found nothing new."""
        return 3 * self.interval + self.timeout


DEFAULT_CHECKS: Final = (Check(name="progress"),)
"""What costs nothing."""

_TAKEN: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"path": ("http", "model_loaded", "inference"), "status": ("http",), "model": ("model_loaded", "inference")}
)


def unasked(pools: Iterable[tuple[Check, ...]]) -> Iterator[str]:
    """Yield a line for each fault in the checks of pools."""
    for at, checks in enumerate(pools):
        names = [check.name for check in checks]
        for number, check in enumerate(checks):
            if check.name in names[:number]:
                yield f"pools[{at}].checks[{number}].name: {check.name} is given already; expected each once"
            for key, takers in _TAKEN.items():
                if getattr(check, key) is not None and check.name not in takers:
                    yield f"pools[{at}].checks[{number}].{key}: expected none with {check.name}; {' and '.join(takers)}"
