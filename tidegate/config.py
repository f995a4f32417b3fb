"""The configuration: one YAML file, every key typed and documented, every error with its place.

``load`` reads a file; ``Config`` is what the composition root hands out. The field descriptions are also the text of
``docs/configuration.md``.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from tidegate import addresses, config_tenants, regular_file, strict_yaml
from tidegate.choice_config import DecisionLog, Filter, Policy, Scorer, weighed_for_nothing
from tidegate.config_agents import Agents, Vram, unguarded
from tidegate.config_breaker import Breaker
from tidegate.config_checks import DEFAULT_CHECKS, Check, unasked
from tidegate.config_control import Control, nowhere
from tidegate.config_discovery import Discovery
from tidegate.config_endpoint import Endpoint
from tidegate.config_envoys import Envoys, listener_of, listening, looping, misplaced, ungrouped
from tidegate.config_health import Health
from tidegate.config_kv_events import KvEvents, untold
from tidegate.config_limits import Limits
from tidegate.config_mirror import Mirror, misled
from tidegate.config_objective import Objective
from tidegate.config_objectives import MAX_OBJECTIVES, RequestObjective, twice
from tidegate.config_placement import MAX_LANES, Lane, Session, misplaced_lanes
from tidegate.config_queue import Queue
from tidegate.config_readiness import Readiness, unshown
from tidegate.config_redis import Redis
from tidegate.config_routes import MAX_ROUTES, Route, senseless, unknown_to_all
from tidegate.config_sections import REFUSE, Admin, Envoy, Listener, Scrape, UnknownPaths
from tidegate.config_tenants import Authentication, Key, Tenant, Tier
from tidegate.config_tls import PoolTls, exposed
from tidegate.config_values import (
    CHECKED,
    Engine,
    Model,
    PoolName,
    Seconds,
    Section,
    Timeout,
    TokenizerFile,
)
from tidegate.faults import fault, lines, shown
from tidegate.picker_settings import Picker
from tidegate.scheduling.filters import DEFAULT as DEFAULT_FILTERS

MAX_FILE_BYTES, MAX_OPEN_PATTERN_BYTES = 1_048_576, 64


class ConfigError(Exception):
    """The configuration cannot be used; one line for each fault, naming the file, the key and what was expected."""


class Pool(Section):
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
        description="Model names served here; `*` stands for any characters; over all pools the longest match wins. "
        "Empty: none but what `routes` lead here.",
    )
    adapters: tuple[Model, ...] = Field(
        (), description="Names of LoRA adapters over the model that the engines hold, likewise."
    )
    policy: Policy = Field("predicted_latency", description="How an endpoint is chosen.")
    filters: tuple[Filter, ...] = Field(
        DEFAULT_FILTERS,
        description="What leaves out endpoints before that, in this order; one that would leave nobody is passed over. "
        "`model` and `role` always apply, and are never passed over.",
    )
    scorers: tuple[Scorer, ...] = Field(
        (), description="What the policy `weighted_scores` weighs; by default queue 2, kv_usage 2, prefix 3."
    )
    lanes: tuple[Lane, ...] = Field(
        (), max_length=MAX_LANES, description="Parts of the endpoints for large prompts; without any, all are alike."
    )
    destinations: int = Field(
        3, ge=1, le=10, description="How many endpoints a decision names: the pick, then the fallbacks for retries."
    )
    retries: int = Field(
        2,
        ge=0,
        le=10,
        description="How often Envoy tries again elsewhere while nothing was delivered: after a failed connection, a "
        "reset before the answer, 429, 502, 503, or an error that says that the engine is dead or out of memory; any "
        "other 500 may be the request's own doing, and is passed on. Never where two engines fell silent over it.",
    )
    fail_open: bool = Field(
        default=False,
        description="Whether requests that nobody can decide on go to this pool, balanced by Envoy, or nowhere.",
    )
    timeout_seconds: Timeout = Field(
        0.0,
        ge=0.0,
        description="How long a request may take to its answer's end; 0 for any time. `x-request-timeout` shortens it.",
    )
    idle_timeout_seconds: Seconds | None = Field(
        None, ge=0.001, description="In place of `limits.idle_timeout_seconds` for the answers of this pool."
    )
    tokenizer: TokenizerFile | None = Field(
        None,
        description="Absolute path of the model's own tokenizer.json, which counts prompts exactly; needs "
        "`tidegate[tokenizers]`. Without it a vocabulary is chosen by the model's name.",
    )
    kv_events: KvEvents | None = Field(
        None,
        description="Where the engines publish what they cache, in vLLM's format; it then replaces what is guessed of "
        "their caches. Needs `tidegate[kv-events]`, and `tokenizer` for prompts that are text. Default: nowhere.",
    )
    vram: Vram = Field(Vram(), description="How the VRAM that GPU agents report bounds a request.")
    queue: Queue = Field(Queue(), description="Where requests wait that find no room.")
    usage: Literal["access_log", "stream"] = Field(
        "access_log",
        description="What reads token usage out of the answers. `access_log`: Envoy, and no byte passes through "
        "Tidegate. `stream`: Tidegate, to which Envoy sends each answer, piece by piece, on its way to the client; "
        "that costs CPU time for each token, and sees errors inside answers, what a broken-off answer had brought, "
        "and the engines' own forms.",
    )
    inject_usage: bool | None = Field(
        None,
        description="Whether streams of chat and completions are asked for their usage where the client did not ask. "
        "With `stream` the client does not see the event that brings it; with `access_log` it does. Default: true with "
        "`stream`, false with `access_log`.",
    )
    objective: Objective = Field(Objective(), description="What the pool is meant to keep.")
    health: Health | None = Field(
        None, description="When its endpoints get less or nothing; default: as the section `health` says for all pools."
    )
    readiness: Readiness = Field(
        Readiness(), description="What endpoints that join others wait for until they get requests."
    )
    breaker: Breaker = Field(Breaker(), description="When an endpoint that fails its requests is left alone.")
    checks: tuple[Check, ...] = Field(
        DEFAULT_CHECKS, max_length=5, description="How the engines are asked how they are, each in its own way once."
    )
    discovery: Discovery | None = Field(None, description="Where engines are found, besides those listed.")
    mirror: Mirror | None = Field(None, description="Another pool that gets copies of its requests.")
    tls: PoolTls | None = Field(None, description="TLS to its engines; without it, none.")
    endpoints: tuple[Endpoint, ...] = Field(
        (), validate_default=True, description="The engines; required unless they are discovered."
    )

    @field_validator("endpoints")
    @classmethod
    def _somebody(cls, endpoints: tuple[Endpoint, ...], info: ValidationInfo) -> tuple[Endpoint, ...]:
        if not endpoints and "discovery" in info.data and info.data["discovery"] is None:
            raise fault("expected at least 1 in the list, not an empty list")
        return endpoints

    @property
    def injects_usage(self) -> bool:
        """Whether usage is asked for in clients' names."""
        return self.usage == "stream" if self.inject_usage is None else self.inject_usage


def _or_refuse(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"$ref": schema.pop("$ref")}, {"const": REFUSE}]
    schema["default"] = REFUSE


class Config(Section):
    """The whole file."""

    listener: Listener = Field(Listener(), description="Where Envoy listens for clients.")
    admin: Admin = Field(Admin(), description="Where Tidegate serves metrics and health.")
    control: Control = Field(Control(), description="Where Envoy reaches the control plane.")
    envoy: Envoy = Field(Envoy(), description="The Envoy that `tidegate up` starts.")
    envoys: Envoys = Field(Envoys(), description="Which Envoys get which listener and which pools; else all the same.")
    limits: Limits = Field(Limits(), description="Bounds on what one request may take.")
    scrape: Scrape = Field(Scrape(), description="How the engines are asked for their load.")
    health: Health = Field(Health(), description="When endpoints get less or nothing, and how they come back.")
    unknown_paths: UnknownPaths = Field(
        UnknownPaths(pool=None),
        description="What becomes of requests on paths that Tidegate does not know.",
        json_schema_extra=_or_refuse,
    )
    session: Session = Field(Session(), description="By what a session is known.")
    agents: Agents | None = Field(None, description="Where GPU agents report; default: nowhere.")
    picker: Picker = Field(Picker(), description="What `tidegate picker` does besides.")
    decision_log: DecisionLog = Field(DecisionLog(), description="Where decisions are recorded.")
    authentication: Authentication = Field(
        Authentication(), description="How it is known who asks, where there are `tenants`."
    )
    tiers: tuple[Tier, ...] = Field((), description="What tenants have in common.")
    tenants: tuple[Tenant, ...] = Field(
        (), description="Who may ask; without any, everybody may, and as much as wanted."
    )
    keys: tuple[Key, ...] = Field((), description="API keys.")
    objectives: tuple[RequestObjective, ...] = Field(
        (), max_length=MAX_OBJECTIVES, description="Priorities that requests ask for by name."
    )
    redis: Redis | None = Field(
        None,
        description="The Redis through which replicas share what tenants use, and tell each other what is in flight; "
        "without it, each counts for itself.",
    )
    pools: tuple[Pool, ...] = Field(min_length=1, description="The fleet.")
    routes: tuple[Route, ...] = Field(
        (), max_length=MAX_ROUTES, description="Requests that go to a pool whatever the models' patterns say."
    )

    @property
    def listener_here(self) -> tuple[str, Listener]:
        """Where the Envoy of `tidegate up` listens for clients, behind the key that says so."""
        return listener_of(self.envoys, self.envoy.group, self.listener)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Where Envoys listen for clients, those of all groups."""
        return (self.listener, *(group.listener for group in self.envoys.groups if group.listener is not None))

    @model_validator(mode="after")
    def _whole(self, info: ValidationInfo) -> "Config":
        """Check what no key can say alone; a line for each fault. What was adjusted since need not be writable."""
        if info.context == CHECKED:
            return self
        faults = [*_given_twice(self.pools), *_ports_taken_twice(self), *nowhere(self.control), *_loops(self)]
        secured = [(f"pools[{at}].tls", pool.tls) for at, pool in enumerate(self.pools)]
        faults += exposed([*listening(self.listener, self.envoys), *secured], guarded=self.control.is_guarded)
        faults += unguarded(self.agents)
        faults += [*_passed_nowhere(self), *_unfit_for_envoy(self.pools), *ungrouped(self.envoys, self.envoy.group)]
        faults += [*config_tenants.faults(self.tiers, self.tenants, self.keys, self.authentication), *_unasked(self)]
        faults += senseless(
            self.routes, self.pools, self.unknown_paths.pool, [pool.mirror.pool for pool in self.pools if pool.mirror]
        )
        faults += [*unknown_to_all(self.routes, self.tenants), *misled(self.pools), *twice(self.objectives)]
        faults += misplaced(self.envoys, self.pools, self.routes, self.authentication.certificate is not None)
        faults += untold((pool.kv_events, pool.engine, pool.endpoints) for pool in self.pools)
        faults += unasked(pool.checks for pool in self.pools)
        faults += unshown((pool.readiness, pool.checks) for pool in self.pools)
        faults += weighed_for_nothing((pool.policy, pool.scorers) for pool in self.pools)
        faults += misplaced_lanes((pool.lanes, [one.address for one in pool.endpoints]) for pool in self.pools)
        if faults:
            raise fault("\n".join(faults))
        return self


def _given_twice(pools: Iterable[Pool]) -> Iterator[str]:
    seen: dict[tuple[str, str], str] = {}
    for at, pool in enumerate(pools):
        keys = [("pool name", pool.name, f"pools[{at}].name")]
        keys += [("model", model, f"pools[{at}].models[{number}]") for number, model in enumerate(pool.models)]
        keys += [("model", model, f"pools[{at}].adapters[{number}]") for number, model in enumerate(pool.adapters)]
        keys += [
            ("endpoint", endpoint.address, f"pools[{at}].endpoints[{number}].address")
            for number, endpoint in enumerate(pool.endpoints)
        ]
        for what, key, place in keys:
            first = seen.setdefault((what, key), place)
            if first != place:
                yield f"{place}: {what} {shown(key)} is given already at {first}; expected each once"


def _ports_taken_twice(config: Config) -> Iterator[str]:
    if config.control.ports[-1] > 65535:
        yield f"control.workers: expected ports up to 65535, one for each worker, not {config.control.ports[-1]}"
    key, here = config.listener_here
    listening = [
        (f"{key}.port", here.address, here.port),
        ("admin.port", config.admin.address, config.admin.port),
        ("control.xds_port", config.control.address, config.control.xds_port),
        *(("control.ext_proc_port", config.control.address, port) for port in config.control.ports),
        ("envoy.admin_port", config.envoy.admin_address, config.envoy.admin_port),
    ]
    if config.picker.health_port is not None:
        listening.append(("picker.health_port", config.control.address, config.picker.health_port))
    if config.agents is not None:
        listening.append(("agents.port", config.agents.address, config.agents.port))
    for (first, one, port), (second, other, again) in itertools.combinations(listening, 2):
        if port == again and addresses.overlap(one, other):
            yield f"{second}: {addresses.joined(other, port)} is taken already by {first}; expected a port of its own"


def _passed_nowhere(config: Config) -> Iterator[str]:
    pool, names = config.unknown_paths.pool, [pool.name for pool in config.pools]
    if pool is not None and pool not in names:
        yield f"unknown_paths.pool: expected one of {', '.join(names)}, not {shown(pool)}"


def _unfit_for_envoy(pools: Sequence[Pool]) -> Iterator[str]:
    """Envoy reads patterns itself where a pool fails open; what it takes of regular expressions is bounded."""
    named = [(at, model) for at, pool in enumerate(pools) for model in pool.models if any(p.fail_open for p in pools)]
    for at, model in named:
        if "*" in model[1:-1] and len(model.encode()) > MAX_OPEN_PATTERN_BYTES:
            most = f"at most {MAX_OPEN_PATTERN_BYTES} bytes of a pattern with a * inside, where a pool fails open"
            yield f"pools[{at}].models: expected {most}, not {shown(model)}"


def _unasked(config: Config) -> Iterator[str]:
    """Where there are tenants, everybody is asked who they are."""
    if config.authentication.certificate and not config.listener.asks_for_certificates:
        yield "authentication.certificate: expected listener.tls.client_ca beside it, or clients show no certificate"
    for at, pool in enumerate(config.pools):
        if config.tenants and pool.fail_open:
            open_ = "expected false where there are tenants: without a decision anybody would get in"
            yield f"pools[{at}].fail_open: {open_}"


def _loops(config: Config) -> Iterator[str]:
    if config.envoys.groups:
        places = {
            f"pools[{at}].endpoints[{number}].address": endpoint.address
            for at, pool in enumerate(config.pools)
            for number, endpoint in enumerate(pool.endpoints)
        }
        yield from looping(config.envoys, places)
    for at, pool in enumerate(config.pools):
        for number, endpoint in enumerate(pool.endpoints):
            if config.listener.is_at(endpoint.address):
                yield (
                    f"pools[{at}].endpoints[{number}].address: {endpoint.address} is where Envoy itself listens for "
                    "clients; expected an engine"
                )


def load(path: Path, context: str | None = None) -> Config:
    """Read and check the file at ``path``, in a ``context`` such as ``FOLLOWED``.

    Raises:
        ConfigError: it is missing, unreadable, too large, not YAML, or says something that is not understood.
    """
    try:
        text = read(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); expected a YAML file") from None
    return parse(text, str(path), context)


def read(path: Path) -> bytes:
    """Return what is in the file at ``path``; of one that is too large, only as much as ``parse`` needs to say so.

    Raises:
        OSError: it cannot be read.
    """
    return regular_file.read(path, MAX_FILE_BYTES)


def parse(text: bytes, name: str, context: str | None = None) -> Config:
    """Check ``text``; ``name`` stands for the file in messages, ``context`` is as for ``load``.

    Raises:
        ConfigError: see ``load``.
    """
    if len(text) > MAX_FILE_BYTES:
        raise ConfigError(f"{name}: too large; expected at most {MAX_FILE_BYTES} bytes")
    try:
        data = strict_yaml.read(text)
    except strict_yaml.NotYaml as error:
        place = name if error.line is None else f"{name}:{error.line}:{error.column}"
        raise ConfigError(f"{place}: not valid YAML: {error.problem}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{name}: expected a mapping with the keys {', '.join(Config.model_fields)}")
    try:
        # Through JSON, because pydantic's strict mode then takes a list for a tuple and still no "8080" for a number.
        return Config.model_validate_json(json.dumps(data), context=context)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{name}: {line}" for line in lines(error, Config))) from None
