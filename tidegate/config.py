"""The configuration: one YAML file, every key typed and documented, every error with its place.

``load`` reads a file; ``Config`` is what the composition root hands out. The field descriptions are also the text of
``docs/configuration.md``.
"""

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from tidegate.scheduling import pickers

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


MAX_BODY_BYTES = 268_435_456
"""The most that ``limits.max_body_bytes`` may be: what one process can be asked to hold for one request."""


class ConfigError(Exception):
    """The configuration cannot be used; one line for each fault, naming the file, the key and what was expected."""


def _fault(message: str) -> PydanticCustomError:
    return PydanticCustomError("tidegate", "{message}", {"message": message})


def _ip(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise _fault(f"expected an IP address, such as 127.0.0.1, not {text!r}") from None


_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<v4>[^:]+)):(?P<port>[0-9]{1,5})", re.ASCII)


def _ip_and_port(text: str) -> str:
    fault = _fault(f"expected ip:port, such as 10.0.0.7:8000 or [fd00::7]:8000, not {text!r}")
    parts = _ADDRESS.fullmatch(text)
    if parts is None or not 1 <= int(parts["port"]) <= 65535:
        raise fault
    try:
        ip = ipaddress.IPv6Address(parts["v6"]) if parts["v6"] else ipaddress.IPv4Address(parts["v4"])
    except ValueError:
        raise fault from None
    return f"[{ip}]:{int(parts['port'])}" if parts["v6"] else f"{ip}:{int(parts['port'])}"


def _picker(name: str) -> str:
    if name not in pickers.names():
        raise _fault(f"expected one of {', '.join(pickers.names())}, not {name!r}")
    return name


Ip = Annotated[str, AfterValidator(_ip)]
IpAndPort = Annotated[str, AfterValidator(_ip_and_port)]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PoolName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Model = Annotated[str, Field(min_length=1, max_length=256)]
Engine = Literal["vllm", "sglang", "tgi", "trtllm", "llamacpp", "none"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Listener(_Section):
    """Where Envoy listens for clients."""

    address: Ip = Field("127.0.0.1", description="IP address that Envoy binds; 0.0.0.0 for all.")
    port: Port = Field(8080, description="Port that Envoy binds.")


class Admin(_Section):
    """Where Tidegate serves /metrics, /healthz, /readyz and the pages behind `tidegate status`."""

    address: Ip = Field("127.0.0.1", description="IP address to bind.")
    port: Port = Field(9090, description="Port to bind.")


class Control(_Section):
    """Where Envoy reaches the control plane, over gRPC."""

    address: Ip = Field(
        "127.0.0.1", description="IP address to bind, and the one Envoy connects to unless `advertise` is set."
    )
    advertise: Ip | None = Field(
        None, description="IP address that Envoy connects to, where it differs from `address`."
    )
    xds_port: Port = Field(18000, description="Port of the discovery service and of the access-log intake.")
    ext_proc_port: Port = Field(18001, description="Port of the external-processing service.")

    @property
    def reached_at(self) -> str:
        """The IP address that Envoy connects to."""
        return self.advertise or self.address


class Envoy(_Section):
    """The Envoy that `tidegate up` starts."""

    admin_address: Ip = Field(
        "127.0.0.1", description="IP address of Envoy's own admin page. Keep it on loopback: it can stop Envoy."
    )
    admin_port: Port = Field(9901, description="Port of Envoy's own admin page.")
    concurrency: int = Field(2, ge=1, le=256, description="Worker threads.")


class Limits(_Section):
    """Bounds on what one request may take."""

    max_body_bytes: int = Field(
        33_554_432,
        ge=1024,
        le=MAX_BODY_BYTES,
        description="Largest request body in bytes; a larger one is answered with 413.",
    )
    decision_timeout_seconds: Seconds = Field(
        10.0, description="How long Envoy waits for a decision before it answers 504."
    )
    idle_timeout_seconds: Seconds = Field(
        300.0,
        description="Silence on an answer after which Envoy ends it; must exceed the longest wait for a first token.",
    )
    lease_seconds: Seconds = Field(
        45.0,
        ge=25.0,
        description="How long a request counts as in flight without a sign of life; Envoy gives one every 10 seconds.",
    )


class Scrape(_Section):
    """How the engines are asked for their load."""

    interval_seconds: Seconds = Field(
        1.0, ge=0.05, description="Pause between two scrapes of one endpoint, jittered by a tenth."
    )
    timeout_seconds: Seconds = Field(2.0, description="Deadline of one scrape.")
    max_bytes: int = Field(
        4_194_304, ge=1024, description="Largest page that is read; a larger one counts as a failed scrape."
    )


class Endpoint(_Section):
    """One engine."""

    address: IpAndPort = Field(description="Its ip:port; IPv6 in brackets.")
    weight: int = Field(1, ge=1, le=1000, description="Relative capacity.")


class Pool(_Section):
    """Endpoints that serve the same models."""

    name: PoolName = Field(
        description="Unique name: lower-case letters, digits and hyphens. Also the name of the Envoy cluster."
    )
    engine: Engine = Field(
        "vllm",
        description="Which engine the endpoints run: the dialect of their metrics; `none`: only connect.",
    )
    models: tuple[Model, ...] = Field(
        ("*",),
        min_length=1,
        description="Model names served here; `*` stands for any characters; over all pools the longest match wins.",
    )
    policy: Annotated[str, AfterValidator(_picker)] = Field("least_tokens", description="How an endpoint is chosen.")
    destinations: int = Field(
        3, ge=1, le=10, description="How many endpoints a decision names: the pick, then the fallbacks for retries."
    )
    retries: int = Field(
        2, ge=0, le=10, description="How often Envoy tries again elsewhere while nothing was delivered."
    )
    endpoints: tuple[Endpoint, ...] = Field(min_length=1, description="The engines.")


class Config(_Section):
    """The whole file."""

    listener: Listener = Field(Listener(), description="Where Envoy listens for clients.")
    admin: Admin = Field(Admin(), description="Where Tidegate serves metrics and health.")
    control: Control = Field(Control(), description="Where Envoy reaches the control plane.")
    envoy: Envoy = Field(Envoy(), description="The Envoy that `tidegate up` starts.")
    limits: Limits = Field(Limits(), description="Bounds on what one request may take.")
    scrape: Scrape = Field(Scrape(), description="How the engines are asked for their load.")
    pools: tuple[Pool, ...] = Field(min_length=1, description="The fleet.")

    @model_validator(mode="after")
    def _unique(self) -> "Config":
        seen: dict[str, str] = {}
        for at, pool in enumerate(self.pools):
            for what, key, place in _unique_keys(at, pool):
                if key in seen:
                    raise _fault(f"{place}: {what} {key!r} is given already at {seen[key]}; expected each once")
                seen[key] = place
        return self


def _unique_keys(at: int, pool: Pool) -> Iterator[tuple[str, str, str]]:
    yield "pool name", pool.name, f"pools[{at}].name"
    for number, endpoint in enumerate(pool.endpoints):
        yield "endpoint", endpoint.address, f"pools[{at}].endpoints[{number}].address"


class _Loader(yaml.SafeLoader):
    """YAML without surprises: a key given twice is an error, and aliases (the YAML bomb) are not taken."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.get_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not supported", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load(path: Path) -> Config:
    """Read and check the file at ``path``.

    Raises:
        ConfigError: it is missing, unreadable, not YAML, or says something that is not understood.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); expected a YAML file") from None
    return parse(text, str(path))


def parse(text: bytes, name: str) -> Config:
    """Check ``text``; ``name`` stands for the file in messages.

    Raises:
        ConfigError: see ``load``.
    """
    try:
        data = yaml.load(text, _Loader)  # noqa: S506  it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise ConfigError(f"{place}: not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{name}: not valid YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{name}: expected a mapping with the keys {', '.join(Config.model_fields)}")
    try:
        # Through JSON, because pydantic's strict mode then takes a list for a tuple and still no "8080" for a number.
        return Config.model_validate_json(json.dumps(data, default=str))
    except ValidationError as error:
        faults = error.errors()
        # A list with a bad item is also reported as too short; the item's own fault says it better.
        inner = {fault["loc"][:depth] for fault in faults for depth in range(len(fault["loc"]))}
        lines = (f"{name}: {_say(fault)}" for fault in faults if not fault["loc"] or fault["loc"] not in inner)
        raise ConfigError("\n".join(lines)) from None


def _say(fault: "ErrorDetails") -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"]).removeprefix(".")
    if fault["type"] == "extra_forbidden":
        siblings = _keys_beside(fault["loc"])
        return f"{path}: unknown key; expected one of {', '.join(siblings)}"
    if fault["type"] == "missing":
        return f"{path}: missing; this key is required"
    message = fault["msg"][:1].lower() + fault["msg"][1:]
    shown = (
        "" if fault["type"] == "tidegate" or isinstance(fault["input"], dict | list) else f", not {fault['input']!r}"
    )
    return f"{path}: {message}{shown}" if path else message


def _keys_beside(path: Sequence[int | str]) -> Iterable[str]:
    """Return the keys that may stand where the last part of ``path`` stands."""
    model: type[BaseModel] = Config
    for part in path[:-1]:
        if isinstance(part, str):
            inner = get_args(model.model_fields[part].annotation)
            model = inner[0] if inner else cast("type[BaseModel]", model.model_fields[part].annotation)
    return model.model_fields
