"""The kinds of values that a configuration holds: what each must be, and what its error says."""

import contextlib
import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from tidegate import addresses
from tidegate.choice_config import one_of
from tidegate.control_headers import CONTROL_NAMES, CONTROL_PREFIXES
from tidegate.faults import fault, shown
from tidegate.fleet import gpu
from tidegate.tokens import model_file

CHECKED = "checked"
"""The context of a validation whose files another process has looked at a moment ago."""

FOLLOWED = "followed"
"""The context of a validation after which certificates are followed: what is wrong with them now can be mended then."""


def _ip(text: str) -> str:
    try:
        return addresses.ip(text)
    except ValueError:
        raise fault(f"expected an IP address, such as 127.0.0.1, not {shown(text)}") from None


def _ip_and_port(text: str) -> str:
    try:
        return addresses.ip_and_port(text)
    except ValueError:
        raise fault(f"expected ip:port, such as 10.0.0.7:8000 or [fd00::7]:8000, not {shown(text)}") from None


_DNS_NAME = r"^[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}))*$"
_RESERVED_NAMES = {"xds"}
_POOL_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


def _pool_name(name: str) -> str:
    if not re.fullmatch(_POOL_NAME, name, re.ASCII):
        raise fault(f"expected 1 to 63 of a-z, 0-9 and hyphens, with no hyphen at either end, not {shown(name)}")
    if name in _RESERVED_NAMES:
        raise fault(f"expected a name other than {shown(name)}, which is Envoy's cluster for the control plane")
    return name


def _tokenizer(path: str, info: ValidationInfo) -> str:
    if info.context == CHECKED:
        return path
    if not Path(path).is_absolute():
        raise fault(f"expected the absolute path of a tokenizer.json, not {shown(path)}")
    try:
        model_file.load(Path(path))
    except model_file.ModelFileError as error:
        raise fault(f"expected a tokenizer.json; {shown(path)} cannot be used: {error}") from None
    return path


def _absolute(path: str) -> str:
    if not Path(path).is_absolute():
        raise fault(f"expected an absolute path, not {shown(path)}")
    return path


def _a_millisecond_or_none(seconds: float) -> float:
    """Envoy counts milliseconds: less would be none at all."""
    if 0.0 < seconds < 0.001:
        raise fault(f"expected 0 or at least 0.001, not {seconds}")
    return seconds


def _server_name(name: str) -> str:
    with contextlib.suppress(ValueError):
        return addresses.ip(name)
    if not re.fullmatch(_DNS_NAME, name, re.ASCII):
        raise fault(f"expected a DNS name or an IP address, not {shown(name)}")
    return name


SECRETS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"})
"""Headers that do not leave Envoy."""

_HEADER = r"^[a-z0-9-]{1,64}$"


def _header(name: str) -> str:
    if not re.fullmatch(_HEADER, name, re.ASCII):
        raise fault(f"expected a header's name: 1 to 64 of a-z, 0-9 and hyphens, not {shown(name)}")
    if name in CONTROL_NAMES or name.startswith(CONTROL_PREFIXES):
        raise fault(f"expected a header that a client may set, not {shown(name)}, which is taken out at the edge")
    if name in SECRETS:
        raise fault(f"expected a header that is no secret, not {shown(name)}")
    return name


Ip = Annotated[str, AfterValidator(_ip)]
IpAndPort = Annotated[str, AfterValidator(_ip_and_port)]
Port = Annotated[int, Field(ge=1, le=65535)]
# Each field gives its own lower bound: pydantic would let one given here win over the field's.
Seconds = Annotated[float, Field(le=86_400, allow_inf_nan=False)]
Timeout = Annotated[float, Field(le=86_400, allow_inf_nan=False), AfterValidator(_a_millisecond_or_none)]
PoolName = Annotated[str, AfterValidator(_pool_name), Field(json_schema_extra={"pattern": _POOL_NAME})]
Model = Annotated[str, Field(min_length=1, max_length=256)]
RewrittenModel = Annotated[str, Field(min_length=1, max_length=256)]
HeaderName = Annotated[str, AfterValidator(_header), Field(json_schema_extra={"pattern": _HEADER})]
Gpu = Annotated[str, *one_of(gpu.PRIORS)]
TokenizerFile = Annotated[str, AfterValidator(_tokenizer), Field(max_length=4096)]
AbsolutePath = Annotated[str, AfterValidator(_absolute), Field(max_length=4096)]
ServerName = Annotated[str, AfterValidator(_server_name), Field(max_length=253)]
Engine = Literal["vllm", "sglang", "tgi", "trtllm", "llamacpp", "none"]


class Section(BaseModel):
    """A mapping in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
