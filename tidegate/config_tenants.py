"""The sections of the configuration that say who may ask, and for how much."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tidegate.config_identity import Certificate, Jwt, Metadata, attributes
from tidegate.config_values import Model, Section
from tidegate.control_headers import CONTROL_PREFIXES
from tidegate.faults import fault, shown
from tidegate.scheduling.budget import Limit, Unit, Window

MAX_AMOUNT = 1_000_000_000_000
_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_HASH = r"^sha256:[0-9a-f]{64}$"
_HEADER = r"^x-[a-z0-9-]{1,62}$"
_TAKEN_HEADERS = re.compile(r"x-(forwarded|request|session|ratelimit)-.*|x-api-key|x-priority|x-canary")
"""What means something else already, besides all that the edge takes away by its prefix."""


def _name(name: str) -> str:
    if not re.fullmatch(_NAME, name, re.ASCII):
        raise fault(f"expected 1 to 63 of a-z, 0-9 and hyphens, with no hyphen at either end, not {shown(name)}")
    return name


def _hash(text: str) -> str:
    if not re.fullmatch(_HASH, text, re.ASCII):
        # What stands there may be the key itself, which must not get into a log.
        raise fault("expected sha256: and 64 hexadecimal digits, as `tidegate key` prints them; it is not shown here")
    return text


def _header(name: str) -> str:
    if not re.fullmatch(_HEADER, name, re.ASCII) or _TAKEN_HEADERS.fullmatch(name) or name.startswith(CONTROL_PREFIXES):
        raise fault(f"expected a header such as x-tenant-id, in lower case, that means nothing else, not {shown(name)}")
    return name


Name = Annotated[str, AfterValidator(_name), Field(json_schema_extra={"pattern": _NAME})]
KeyHash = Annotated[str, AfterValidator(_hash), Field(json_schema_extra={"pattern": _HASH})]
HeaderName = Annotated[str, AfterValidator(_header), Field(json_schema_extra={"pattern": _HEADER})]
Identity = Annotated[str, Field(min_length=1, max_length=512)]


def _amount(what: str) -> int | None:
    field: int | None = Field(None, ge=1, le=MAX_AMOUNT, description=f"{what}; any number by default.")
    return field


class LimitSet(Section):
    """How much may be used. Every limit counts on its own, and a request must fit them all.

    Tokens are reserved before a request is sent anywhere (the prompt as counted, the answer by `tiers[].reserve`), and
    set right by the usage that the engine reports. A minute's limits are token buckets, which refill evenly; a day ends
    at midnight UTC.
    """

    requests_per_minute: int | None = _amount("Requests a minute")
    input_tokens_per_minute: int | None = _amount("Prompt tokens a minute")
    output_tokens_per_minute: int | None = _amount("Output tokens a minute")
    tokens_per_minute: int | None = _amount("Prompt and output tokens together a minute")
    requests_per_day: int | None = _amount("Requests a day")
    input_tokens_per_day: int | None = _amount("Prompt tokens a day")
    output_tokens_per_day: int | None = _amount("Output tokens a day")
    tokens_per_day: int | None = _amount("Prompt and output tokens together a day")
    requests_in_flight: int | None = _amount("Requests at a time")
    tokens_in_flight: int | None = _amount("Prompt and expected output tokens of all requests at a time")
    burst: float | None = Field(
        None,
        ge=0.01,
        le=60.0,
        allow_inf_nan=False,
        description="How much of the minute's limits may be used at once, in minutes; 1 by default.",
    )


class ModelLimits(Section):
    """Limits of the requests for some models, beside the others."""

    model: Model = Field(
        description="The model's name, the engine's where a route gives another; `*` stands for any characters."
    )
    limits: LimitSet = Field(description="How much of it may be used by one tenant.")


class Tier(Section):
    """What tenants have in common. Its limits are each tenant's, and not shared between tenants."""

    name: Name = Field(description="Unique name: lower-case letters, digits and hyphens.")
    priority: int = Field(0, ge=-100, le=100, description="The highest priority of its requests; larger is sooner.")
    weight: float = Field(
        1.0,
        ge=0.01,
        le=100.0,
        allow_inf_nan=False,
        description="The share of each of its tenants, beside others of the same priority, of what a queue lets go.",
    )
    reserve: Literal["limit", "expected"] = Field(
        "limit",
        description="What is reserved for an answer until its usage is known: the `limit` that the request sets itself "
        "(`max_tokens`), so that no limit is ever exceeded, or what is `expected`, which nine in ten such answers stay "
        "below; that also where the request sets none.",
    )
    limits: LimitSet = Field(LimitSet(), description="How much each of its tenants may use.")
    models: tuple[ModelLimits, ...] = Field((), description="Limits for single models.")


class Tenant(Section):
    """Somebody whose requests are counted together."""

    name: Name = Field(description="Unique name: lower-case letters, digits and hyphens.")
    tier: Name | None = Field(None, description="Its tier; without one it has no limits but its own, and priority 0.")
    identities: tuple[Identity, ...] = Field(
        (),
        description="What stands for it where `authentication` finds who asks in a token, a certificate, metadata or a "
        "header; its name always does.",
    )
    limits: LimitSet = Field(LimitSet(), description="How much it may use, where that differs from its tier's.")
    models: tuple[ModelLimits, ...] = Field((), description="Limits for single models, likewise.")


class Key(Section):
    """An API key. The file holds its hash alone; `tidegate key` makes a key and prints both."""

    name: Name = Field(description="Unique name, by which the key is told of: never the key itself.")
    tenant: Name = Field(description="Whose it is.")
    hash: KeyHash = Field(description="`sha256:` and the hash in 64 hexadecimal digits.")
    limits: LimitSet = Field(LimitSet(), description="How much may be used with this key, beside the tenant's limits.")


class Authentication(Section):
    """How it is known who asks, where there are `tenants`."""

    anonymous: Name | None = Field(
        None, description="The tenant of requests without any credentials; they are answered with 401 by default."
    )
    identity_header: HeaderName | None = Field(
        None,
        description="A header in which a proxy in front, which has looked at a JWT or a certificate, says who asks. It "
        "is believed from whoever reaches the listener: that must be this proxy alone, and it must set or remove the "
        "header on every request.",
    )
    jwt: Jwt | None = Field(None, description="Tokens that say who asks; without it, none.")
    certificate: Certificate | None = Field(
        None,
        description="What of a client's certificate says who asks: its first `uri_san` (as SPIFFE has it), its first "
        "`dns_san`, or its `subject` (such as `CN=acme,O=Example`). Needs `listener.tls.client_ca`.",
    )
    metadata: Metadata | None = Field(
        None, description="Dynamic metadata in which a filter of `listener.filters` leaves who asks; by default none."
    )
    salt_prefixes: bool = Field(
        default=False,
        description="Whether prompts that begin alike count as cached for their own tenant alone, so that no choice of "
        "an endpoint depends on what others asked. Not where engines tell what they cache (`kv_events`).",
    )

    @property
    def attributes(self) -> tuple[str, ...]:
        """What Envoy knows of who asks, as expressions in CEL; what an earlier one says counts for more."""
        return attributes(self.metadata, self.jwt, self.certificate)


def limits_of(*sets: LimitSet) -> tuple[Limit, ...]:
    """Return the limits that ``sets`` come to; what a later one says counts for more."""
    said: dict[str, float] = {}
    for one in sets:
        said |= {name: value for name, value in one.model_dump().items() if value is not None}
    burst = said.get("burst", 1.0)
    return tuple(
        Limit(unit, window, int(said[name]), max(1, round(said[name] * burst)) if window is Window.MINUTE else None)
        for window in Window
        for unit in Unit
        if (name := Limit(unit, window, 1).name) in said
    )


def faults(
    tiers: Sequence[Tier], tenants: Sequence[Tenant], keys: Sequence[Key], authentication: Authentication
) -> Iterator[str]:
    """Yield a line for each thing that these sections say wrongly together."""
    yield from _named_twice("tiers", [tier.name for tier in tiers])
    yield from _named_twice("tenants", [tenant.name for tenant in tenants])
    yield from _named_twice("keys", [key.name for key in keys])
    names, known_tiers = [tenant.name for tenant in tenants], {tier.name for tier in tiers}
    for at, tenant in enumerate(tenants):
        if tenant.tier is not None and tenant.tier not in known_tiers:
            yield f"tenants[{at}].tier: expected the name of a tier, not {shown(tenant.tier)}"
    for at, key in enumerate(keys):
        if key.tenant not in names:
            yield f"keys[{at}].tenant: expected the name of a tenant, not {shown(key.tenant)}"
    if authentication.anonymous is not None and authentication.anonymous not in names:
        yield f"authentication.anonymous: expected the name of a tenant, not {shown(authentication.anonymous)}"
    for source in ("identity_header", "jwt", "certificate", "metadata"):
        if getattr(authentication, source) is not None and not tenants:
            yield f"authentication.{source}: expected tenants beside it, or nobody looks at it"
    yield from _meant_twice(tenants, keys)


def _named_twice(section: str, names: Sequence[str]) -> Iterator[str]:
    for at, name in enumerate(names):
        if (first := names.index(name)) != at:
            yield f"{section}[{at}].name: {shown(name)} is given already at {section}[{first}].name; expected each once"


def _meant_twice(tenants: Iterable[Tenant], keys: Iterable[Key]) -> Iterator[str]:
    identities: dict[str, str] = {tenant.name: f"tenants[{at}].name" for at, tenant in enumerate(tenants)}
    for at, tenant in enumerate(tenants):
        for number, identity in enumerate(tenant.identities):
            place = f"tenants[{at}].identities[{number}]"
            if (first := identities.setdefault(identity, place)) != place:
                yield f"{place}: {shown(identity)} is given already at {first}; expected each once"
    hashes: dict[str, int] = {}
    for at, key in enumerate(keys):
        if (seen := hashes.setdefault(key.hash, at)) != at:
            yield f"keys[{at}].hash: is given already at keys[{seen}].hash; expected each key once"
